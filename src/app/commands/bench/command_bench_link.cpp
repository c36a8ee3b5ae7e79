// SPDX-License-Identifier: Apache-2.0
// `bench link`: this process is one site; all of them measure their links, one pair at a time.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <system_error>

#include "app/commands/bench/exchange_cost.h"
#include "app/commands/bench/link_commands.h"
#include "app/commands/bench/link_party.h"
#include "app/commands/bench/link_report.h"
#include "app/common/signals.h"
#include "config/links_file.h"
#include "core/base/fresh_id.h"
#include "core/base/log.h"
#include "core/base/storage.h"
#include "core/base/system_runtime.h"
#include "core/base/units.h"
#include "record/build_info.h"
#include "record/run_lock.h"
#include "record/wall_clock.h"
#include "session/site/link_rendezvous.h"
#include "session/site/site_routes.h"
#include "transport/links/probe/link_survey.h"
#include "transport/links/zmq/zmq_transport.h"

namespace isthmus::app {
namespace {

constexpr double kFewestSeconds = 0.5, kMostSeconds = 600;
constexpr int kMostStreams = 64;
constexpr Duration kProbeSignalLook = std::chrono::milliseconds(200);
constexpr Duration kBetweenProbeWords = std::chrono::seconds(10);

/// One line that is redrawn, or lines below one another.
class SurveyProgress {
 public:
  explicit SurveyProgress(Session& session)
      : session_(session), block_(session.err), shown_(session.progress != ProgressMode::kNone) {}
  ~SurveyProgress() {
    if (redrawn()) block_.finish(false);
  }
  /// Shows the current work; the next line replaces it.
  void now(const std::string& words) {
    if (redrawn()) {
      block_.draw({words});
    } else if (shown_) {
      session_.err.write(words + "\n");
    }
  }
  /// Writes a line that stays.
  void say(const std::string& words) {
    if (redrawn()) {
      block_.print_above(words + "\n");
    } else if (shown_) {
      session_.err.write(words + "\n");
    }
  }

 private:
  [[nodiscard]] bool redrawn() const { return shown_ && session_.err.interactive(); }
  Session& session_;
  StatusBlock block_;
  const bool shown_;
};

void check_arguments(const BenchLinkArguments& arguments) {
  const auto refuse = [](const std::string& text) {
    throw UsageError("bench link: " + text + "; see `isthmus bench link --help`");
  };
  const bool file = !arguments.config.empty();
  if (!file && arguments.to.empty() && arguments.site.listen.empty()) {
    refuse("give a CONFIG and --site NAME, or --listen HOST:PORT here and --to HOST:PORT there");
  }
  if (file && arguments.site.name.empty()) {
    refuse(fmt::format("--site is missing: which site of {} is this?", arguments.config.string()));
  }
  if (file && !arguments.to.empty()) {
    refuse(
        "--to is for two machines without a CONFIG; a site's address stands in the file, or in "
        "--address");
  }
  if (!file && (!arguments.overrides.empty() || !arguments.site.addresses.empty() ||
                !arguments.site.key_file.empty())) {
    refuse("--set, --address and --key need a CONFIG");
  }
  if (!(arguments.seconds >= kFewestSeconds && arguments.seconds <= kMostSeconds)) {
    refuse(fmt::format("--seconds {}: must be in [{}, {}]", arguments.seconds, kFewestSeconds,
                       kMostSeconds));
  }
  if (arguments.streams < 1 || arguments.streams > kMostStreams) {
    refuse(fmt::format("--streams {}: must be in [1, {}]", arguments.streams, kMostStreams));
  }
}

/// A measurement takes long, so obstacles to writing its file are told before it.
void check_out(const BenchLinkArguments& arguments) {
  namespace fs = std::filesystem;
  const fs::path& out = arguments.out;
  if (out.empty()) return;
  check_outside_run(out);
  const auto refuse = [&](const std::string& text) {
    throw UsageError(fmt::format("bench link: --out {}: {}", out.string(), text));
  };
  std::error_code error;
  const fs::file_status status = fs::status(out, error);
  if (!arguments.config.empty() && fs::equivalent(out, arguments.config, error)) {
    refuse("is the CONFIG; the links get a file of their own");
  }
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    refuse("is no file that could be replaced; name one");
  }
  if (fs::exists(status) && fs::file_size(out, error) != 0) {
    try {
      (void)read_links_file(out, {});
    } catch (const ConfigErrors& errors) {
      refuse(fmt::format("is there and no links file ({}); remove it or give another name",
                         errors.summary()));
    }
  }
  SystemStorage storage;
  const fs::path trial = temporary_beside(out);
  try {
    (void)storage.create(trial);
    storage.remove(trial);
  } catch (const SystemError& system) {
    throw SystemError(
        fmt::format("--out {} could not be written: {}", out.string(), system.what()));
  }
}

constexpr const char* kPurpose = "bench link";

void settle(const BenchLinkArguments& arguments, MemberOptions& options) {
  options.streams = arguments.streams;
  options.most_streams = 0;  // all of them, whatever number the run itself uses
  options.plaintext = options.plaintext || arguments.plaintext;
  options.on_event = [](const LinkEvent& event) {
    const bool bad = event.kind == LinkEvent::Kind::kStranger ||
                     event.kind == LinkEvent::Kind::kHandshakeFailed ||
                     event.kind == LinkEvent::Kind::kUnresolved ||
                     event.kind == LinkEvent::Kind::kRefused;
    if (bad) {
      log_warning("link: {}", event.text);
    } else {
      log_debug("link: {}", event.text);
    }
  };
}

std::string endpoint_of(const std::string& host, int port) {
  const bool bare = host.find(':') != std::string::npos && !host.starts_with('[');
  return bare ? fmt::format("tcp://[{}]:{}", host, port)
              : fmt::format("tcp://{}:{}", host.empty() ? "*" : host, port);
}

MemberOptions one_of_two(const BenchLinkArguments& arguments, int self, const std::string& name,
                         const std::string& token) {
  MemberOptions options;
  options.self = WorkerId(self);
  options.members = 2;
  options.name = name;
  options.identity = link_identity(kPurpose, token);
  settle(arguments, options);
  return options;
}

bool is_loopback_host(const std::string& host) {
  return host == "localhost" || host == "::1" || host == "[::1]" || host.starts_with("127.");
}

/// Plain text must be wished for before anybody is called.
void check_plaintext(const BenchLinkArguments& arguments, const std::string& flag,
                     const std::string& place, const std::string& host) {
  if (!arguments.plaintext && !is_loopback_host(host)) {
    throw ConfigError(fmt::format(
        "{} {}: without a CONFIG that gives sites keys, links go unencrypted, and everybody "
        "on the network can take part: give --plaintext to accept that",
        flag, place));
  }
}

/// Joins: dials, and waits for all.
void gather(NetworkTransport& transport, const LinkParty& party, Runtime& runtime,
            SurveyProgress& progress) {
  const TimePoint deadline = runtime.clock().now() + party.gather;
  TimePoint next_word = runtime.clock().now() + kBetweenProbeWords;
  transport.join(party.endpoints);
  while (true) {
    const TimePoint now = runtime.clock().now();
    const auto joined = transport.await_members(std::min(deadline, now + kProbeSignalLook));
    if (joined) return;
    stop_at_signal();
    if (joined.error().refused) {
      throw PeerError(joined.error().what);
    }
    if (runtime.clock().now() >= deadline) {
      throw PeerError(fmt::format("the sites did not come together within {}: {}",
                                  human_time(in_seconds(party.gather)), joined.error().what));
    }
    if (runtime.clock().now() >= next_word) {
      progress.say(joined.error().what);
      next_word += kBetweenProbeWords;
    }
  }
}

/// Two machines: finds the other one, and opens the links to it.
std::unique_ptr<NetworkTransport> meet(const BenchLinkArguments& arguments, Runtime& runtime,
                                       LinkParty& party, SurveyProgress& progress) {
  const bool calls = !arguments.to.empty();
  MeetingOptions meeting{
      .name = arguments.site.name.empty() ? (calls ? "caller" : "listener") : arguments.site.name,
      .patience_s = in_seconds(party.gather),
      .check = stop_at_signal};
  std::unique_ptr<NetworkTransport> transport;
  if (!calls) {
    const HostPort here = parse_host_port("--listen", arguments.site.listen);
    check_plaintext(arguments, "--listen", arguments.site.listen, here.host);
    progress.say(fmt::format("waiting for the other machine at {}", arguments.site.listen));
    const Meeting other = await_call(here, meeting);
    party.options = one_of_two(arguments, 0, meeting.name, other.token);
    party.options.bind = endpoint_of(here.host, here.port);
    party.endpoints = {endpoint_of("127.0.0.1", here.port), endpoint_of(other.host, other.port)};
    party.names = {meeting.name, other.name};
    transport = make_zmq_transport(runtime, party.options);
  } else {
    const HostPort there = parse_host_port("--to", arguments.to);
    check_plaintext(arguments, "--to", arguments.to, there.host);
    const std::string token = fresh_id().hex();
    party.options = one_of_two(arguments, 1, meeting.name, token);
    party.options.bind = is_loopback_host(there.host) ? "tcp://127.0.0.1:*" : "tcp://*:*";
    if (!arguments.site.listen.empty()) {
      const HostPort here = parse_host_port("--listen", arguments.site.listen);
      party.options.bind = endpoint_of(here.host, here.port);
    }
    transport = make_zmq_transport(runtime, party.options);
    const std::string& endpoint = transport->endpoint();
    const int port = std::stoi(endpoint.substr(endpoint.rfind(':') + 1));
    const Meeting other = call(there, token, port, meeting);
    party.endpoints = {endpoint_of(other.host, other.port), endpoint_of("127.0.0.1", port)};
    party.names = {other.name, meeting.name};
  }
  if (party.names[0] == party.names[1]) {
    throw ConfigError(
        fmt::format("both machines are named '{}'; give them names by --site", party.names[0]));
  }
  return transport;
}

void write_links(const BenchLinkArguments& arguments, const Survey& survey) {
  const BuildInfo build = build_info();
  std::vector<NotedLink> links;
  for (const PairMeasurement& pair : survey.pairs) links.push_back(noted_link(survey, pair));
  const std::string text = links_toml(
      links, {.at = utc_now(),
              .by = fmt::format("isthmus {} ({})", build.version, build.git),
              .how = fmt::format("isthmus bench link --seconds {:g} --streams {}; rates are those "
                                 "of lines that give the measured payload in a simulation",
                                 arguments.seconds, arguments.streams)});
  SystemStorage storage;
  write_atomically(storage, arguments.out, text);
}

}  // namespace

int command_bench_link(const BenchLinkArguments& arguments, Session& session) {
  check_arguments(arguments);
  check_out(arguments);
  const SignalScope signals;
  SystemRuntime runtime;
  LinkParty party;
  SurveyProgress progress(session);
  const ProbePlan plan{.budget = std::chrono::duration_cast<Duration>(
                           std::chrono::duration<double>(arguments.seconds)),
                       .streams = static_cast<std::uint32_t>(arguments.streams)};
  const bool file = !arguments.config.empty();
  if (file) {
    party = link_party(arguments.config, arguments.overrides, arguments.site, kPurpose);
    settle(arguments, party.options);
  }
  const int members = file ? party.options.members : 2;
  const int pairs = members * (members - 1) / 2;
  progress.say(
      fmt::format("{} link{} between {} sites, one at a time: about {} once all are here "
                  "(--seconds {:g} a direction; long round trips take longer)",
                  pairs, pairs == 1 ? "" : "s", members,
                  human_time(in_seconds(survey_time(members, plan))), arguments.seconds));
  std::unique_ptr<SiteRoutes> routes;  // ends after the transport
  const std::unique_ptr<NetworkTransport> transport =
      file ? make_zmq_transport(runtime, party.options) : meet(arguments, runtime, party, progress);
  if (file) {
    routes =
        std::make_unique<SiteRoutes>(runtime, party.sites, party.options, transport->endpoint());
    party.endpoints = routes->endpoints();
  }
  gather(*transport, party, runtime, progress);

  SurveyOptions options;
  options.plan = plan;
  options.name = party.options.name;
  options.names = party.names;
  options.gauge = dynamic_cast<LinkGauge*>(transport.get());
  options.say = [&progress](const std::string& words) { progress.now(words); };
  options.check = stop_at_signal;
  options.on_result = [&](const PairMeasurement& pair, std::size_t done, std::size_t all) {
    const auto name = [&](WorkerId member) {
      return party.names[static_cast<std::size_t>(member.value())];
    };
    progress.say(fmt::format("[{}/{}] {} -> {} {}, {} -> {} {}, round trip {}", done, all,
                             name(pair.a), name(pair.b), human_rate(pair.up.bits_per_s),
                             name(pair.b), name(pair.a), human_rate(pair.down.bits_per_s),
                             human_time(in_seconds(pair.echo.p50))));
  };
  const double before_s = processor_seconds();
  const Survey survey = survey_links(*transport, runtime, options);
  const CarryingCost cost =
      carrying_cost(survey, party.options.self, processor_seconds() - before_s);
  if (routes) routes->finish_in_order();
  if (session.json) {
    for (const PairMeasurement& pair : survey.pairs) {
      for (const bool up : {true, false}) {
        session.out.write(link_json(survey, pair, up) + "\n");
      }
    }
  } else {
    session.out.write("\n" + link_table(survey, session.out));
  }
  // Beside the results, which are the same at every site.
  if (const std::string words = carrying_words(survey, cost); !words.empty()) progress.say(words);
  if (!party.hub.empty()) {
    progress.say(fmt::format(
        "the hub at {} was not measured: a round costs it some hundred bytes a site", party.hub));
  }
  if (!arguments.out.empty()) {
    write_links(arguments, survey);
    if (!session.quiet) {
      progress.say(fmt::format("wrote {}; use it: isthmus simulate {} --links {}",
                               arguments.out.string(), file ? arguments.config.string() : "FILE",
                               arguments.out.string()));
    }
  }
  return 0;
}

}  // namespace isthmus::app
