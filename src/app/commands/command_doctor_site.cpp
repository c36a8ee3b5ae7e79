// SPDX-License-Identifier: Apache-2.0
// `doctor CONFIG --site NAME`: the sites that this site reaches, and why it does not reach the
// others.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "app/commands/bench/link_commands.h"
#include "app/commands/bench/link_party.h"
#include "app/common/signals.h"
#include "core/base/system_runtime.h"
#include "core/base/units.h"
#include "record/json_line.h"
#include "session/site/link_rendezvous.h"
#include "session/site/site_routes.h"
#include "transport/links/zmq/zmq_transport.h"

namespace isthmus::app {
namespace {

constexpr double kLongestCheck = 600;
constexpr Duration kLookBetweenChecks = std::chrono::milliseconds(200);
constexpr Duration kForTheOthers = std::chrono::seconds(2);

/// The findings about one other site.
struct Reach {
  bool good = false;       // it has let this site in
  std::string refusal;     // of the handshake, in words
  std::string connection;  // why there is none; empty: the port answers
};

/// Filled by the links' task.
class Findings {
 public:
  Findings(Runtime& runtime, std::size_t sites) : queue_(runtime.make_wait_queue()), all_(sites) {}
  void take(const LinkEvent& event) {
    queue_->update([&] {
      if (event.peer.value() < 0) {
        strangers_ = event.text;
        return;
      }
      Reach& reach = all_.at(static_cast<std::size_t>(event.peer.value()));
      if (event.kind == LinkEvent::Kind::kWelcomed) {
        reach.good = true;
      } else if (event.kind == LinkEvent::Kind::kRefused ||
                 event.kind == LinkEvent::Kind::kHandshakeFailed) {
        reach.refusal = event.text;
      }
    });
  }
  [[nodiscard]] std::vector<Reach> all() const {
    std::vector<Reach> found;
    queue_->update([&] { found = all_; });
    return found;
  }
  [[nodiscard]] std::string strangers() const {
    std::string found;
    queue_->update([&] { found = strangers_; });
    return found;
  }

 private:
  std::unique_ptr<WaitQueue> queue_;
  // Under queue_'s lock:
  std::vector<Reach> all_;
  std::string strangers_;  // the last strangers that connected and got no further
};

HostPort place_of(const std::string& endpoint) {
  return parse_host_port("address", endpoint.substr(endpoint.find("://") + 3));
}

std::string words_of(const Reach& reach, bool keys) {
  if (reach.good) {
    return keys ? "reached; key and version fit" : "reached, in plain text; the version fits";
  }
  if (!reach.refusal.empty()) return reach.refusal;
  if (!reach.connection.empty()) return "not reached: " + reach.connection;
  return "the port answers, but not as a site of this file; is `isthmus doctor` running there?";
}

}  // namespace

int command_doctor_site(const DoctorSiteArguments& arguments, Session& session) {
  if (arguments.site.name.empty()) {
    throw UsageError(fmt::format("doctor: --site is missing: which site of {} is this?",
                                 arguments.config.string()));
  }
  if (!(arguments.seconds > 0 && arguments.seconds <= kLongestCheck)) {
    throw UsageError(
        fmt::format("doctor: --seconds {}: must be in (0, {}]", arguments.seconds, kLongestCheck));
  }
  const SignalScope signals;
  SystemRuntime runtime;
  LinkParty party = link_party(arguments.config, arguments.overrides, arguments.site, "doctor");
  Findings findings(runtime, party.names.size());
  party.options.streams = 1;
  party.options.most_streams = 0;
  party.options.on_event = [&findings](const LinkEvent& event) { findings.take(event); };
  std::unique_ptr<SiteRoutes> routes;  // ends after the transport
  const std::unique_ptr<NetworkTransport> transport = make_zmq_transport(runtime, party.options);
  routes = std::make_unique<SiteRoutes>(runtime, party.sites, party.options, transport->endpoint());
  const TimePoint end =
      runtime.clock().now() +
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(arguments.seconds));
  transport->join(routes->endpoints());
  bool joined = false;
  while (!joined && runtime.clock().now() < end) {
    const TimePoint look = std::min(end, runtime.clock().now() + kLookBetweenChecks);
    joined = transport->await_members(look).has_value();
    if (!joined) runtime.sleep_until(look);  // a refusal by one site is no news of the others
    stop_at_signal();
  }
  // Some of them may not have reached this site yet.
  const TimePoint heard = std::min(end, runtime.clock().now() + kForTheOthers);
  if (joined) runtime.sleep_until(heard);
  std::vector<Reach> all = findings.all();
  bool every = true;
  std::vector<std::string> parts;
  const auto tell = [&](const std::string& to, const std::string& endpoint, bool good,
                        const std::string& words) {
    every = every && good;
    if (session.json) {
      parts.push_back(JsonLine()
                          .add("from", arguments.site.name)
                          .add("to", to)
                          .add("endpoint", endpoint)
                          .add("reached", good)
                          .add("why", words)
                          .str());
    } else {
      session.out.write(
          fmt::format("{}  {:15} {}: {}\n",
                      session.out.paint(good ? Style::kGood : Style::kBad, good ? "ok" : "!!"), to,
                      endpoint, words));
    }
  };
  for (std::size_t site = 0; site < all.size(); ++site) {
    if (WorkerId(static_cast<int>(site)) == transport->self()) continue;
    const std::string way = routes->way(WorkerId(static_cast<int>(site)));
    const std::string& endpoint = way.empty() ? routes->endpoints()[site] : way;
    if (!all[site].good) {
      all[site].connection = way.empty() ? why_not_reached(place_of(endpoint))
                                         : routes->trouble(WorkerId(static_cast<int>(site)));
    }
    const std::string words = words_of(all[site], !party.options.member_keys.empty());
    tell(party.names[site], endpoint, all[site].good, words);
  }
  if (!party.hub.empty()) {  // a hub of a run does not answer a site that only looks
    const std::string trouble = why_not_reached(parse_host_port("hub.address", party.hub));
    const std::string words = trouble.empty() ? "the port answers" : "not reached: " + trouble;
    tell("hub", "tcp://" + party.hub, trouble.empty(), words);
  }
  const std::string strangers = findings.strangers();
  const double cap = party.options.send_bits_per_s();  // 0: none
  if (session.json) {
    session.answer(JsonLine()
                       .add_raw("sites", json_array(parts))
                       .add("strangers", strangers)
                       .add("cap_bits_per_s", cap));
  } else {
    if (cap > 0) {
      session.out.write(fmt::format("--  {:15} {} sends at most {} at this hour\n", "cap",
                                    arguments.site.name, human_rate(cap)));
    }
    if (!strangers.empty()) {
      session.out.write(fmt::format("--  {:15} {}\n", "strangers", strangers));
    }
  }
  if (!every) {
    throw PeerError(
        fmt::format("site {} cannot reach all others; to see both ends of each link, run `isthmus "
                    "doctor` at all sites at once",
                    arguments.site.name));
  }
  return 0;
}

}  // namespace isthmus::app
