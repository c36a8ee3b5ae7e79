// SPDX-License-Identifier: Apache-2.0
#include "app/site_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>

#include "app/run_parts.h"
#include "app/signals.h"
#include "app/site_links.h"
#include "app/status_board.h"
#include "app/watched_transport.h"
#include "core/log.h"
#include "isthmus/errors.h"
#include "transport/link_keys.h"
#include "transport/mpi_transport.h"
#include "transport/zmq_transport.h"

namespace isthmus::app {
namespace {

constexpr Duration kLookForSignals = std::chrono::milliseconds(200);
constexpr Duration kBetweenWords = std::chrono::seconds(10);
/// Links repeat what breaks, so a silent peer is slow, never to be asked again.
constexpr Duration kNothingIsLost = std::chrono::hours(24 * 365);

std::string host_of(const std::string& address) { return address.substr(0, address.rfind(':')); }

/// Where to bind: as told, or the site's port on all interfaces, or on loopback where that is its
/// address.
std::string listens_at(const SiteConfig& site, const std::string& listen) {
  if (!listen.empty()) {
    return "tcp://" + listen;
  }
  const std::string host = host_of(site.address);
  const std::string port = site.address.substr(site.address.rfind(':'));
  const bool loopback = host == "localhost" || host == "[::1]" || host.starts_with("127.");
  return "tcp://" + (loopback ? (host == "localhost" ? "127.0.0.1" : host) : "*") + port;
}

void check_signal(const std::string& waiting_for) {
  if (SignalScope::wish() != StopWish::kNone) {
    throw Error(SignalScope::wish() == StopWish::kRequeue ? ExitCode::kCheckpointedRequeue
                                                          : ExitCode::kInterrupted,
                fmt::format("stopped before the first step: {}", waiting_for));
  }
}

/// All sites have a key, or none.
void take_keys(const Config& config, const SiteArguments& arguments, const std::string& own,
               MemberOptions& options) {
  for (const SiteConfig& site : config.sites) {
    if (site.key.empty() != config.sites.front().key.empty()) {
      throw ConfigError(fmt::format(
          "site '{}' has {} key and site '{}' has {}: give every site the public key that `isthmus "
          "keygen` printed for it, or none",
          site.name, site.key.empty() ? "no" : "a", config.sites.front().name,
          site.key.empty() ? "one" : "none"));
    }
    if (!site.key.empty()) {
      check_public_key(site.key, fmt::format("key of site '{}'", site.name));
      options.member_keys.push_back(site.key);
    }
  }
  if (!options.member_keys.empty()) {
    const std::filesystem::path file = arguments.key_file.empty()
                                           ? config.locate(fmt::format("keys/{}.key", own))
                                           : arguments.key_file;
    options.keys = read_secret_key(file);
  } else if (!arguments.key_file.empty()) {
    throw ConfigError(
        fmt::format("--key {}: no site has a public key in {}: add key = \"…\" to every [[site]]",
                    arguments.key_file.string(), config.file.string()));
  }
}

MemberOptions member_options(const Config& config, const SiteArguments& arguments, Rank self,
                             StatusBoard* status) {
  const SiteConfig& site = config.sites[static_cast<std::size_t>(self.value())];
  MemberOptions options;
  options.self = self;
  options.members = config.workers();
  options.bind = listens_at(site, arguments.listen);
  options.identity.run = xxh3_128(as_bytes(config.run.name));
  // The rest is compared key by key: HelloNote.
  options.name = site.name;
  for (const SiteConfig& each : config.sites) {
    options.expected_names.push_back(each.name);
  }
  options.streams = config.net.streams;
  options.dead_after = config.net.dead_after;
  options.plaintext = config.net.plaintext;
  take_keys(config, arguments, site.name, options);
  options.heartbeat = std::min<Duration>(options.heartbeat, config.net.dead_after / 4);
  options.on_event = [self, status](const LinkEvent& event) {
    if (status != nullptr) status->link(self, event);
    switch (event.kind) {
      case LinkEvent::Kind::kConnected:
      case LinkEvent::Kind::kWelcomed:
      case LinkEvent::Kind::kRetried:
        log_debug("link: {}", event.text);
        break;
      case LinkEvent::Kind::kLeft:
        log_info("link: {}", event.text);
        break;
      default:
        log_warning("link: {}", event.text);
    }
  };
  return options;
}

}  // namespace

MemberOptions link_options(const Config& config, const SiteArguments& arguments, Rank self) {
  return member_options(config, arguments, self, nullptr);
}

/// Events of the exchange, which starts before anybody writes them down.
class SiteSession::Events final : public EventSink {
 public:
  void record(const Event& event) override {
    if (EventSink* sink = sink_.load()) sink->record(event);
  }
  void record_into(EventSink* sink) { sink_ = sink; }

 private:
  std::atomic<EventSink*> sink_{nullptr};
};

SiteSession::SiteSession(const Config& config, const SiteArguments& arguments,
                         const SiteFacts& facts, StatusBoard* status)
    : config_(config),
      self_(site_of(config, arguments)),
      facts_(facts),
      queue_(runtime_.make_wait_queue()),
      hellos_(config.sites.size()),
      events_(std::make_unique<Events>()),
      transport_(arguments.mpi ? make_mpi_transport(runtime_, config.net.dead_after)
                               : make_zmq_transport(
                                     runtime_, member_options(config, arguments, self_, status))),
      watched_(std::make_unique<WatchedTransport>(*transport_, status)) {}

SiteSession::~SiteSession() = default;

std::string SiteSession::name(Rank site) const {
  return config_.sites[static_cast<std::size_t>(site.value())].name;
}

SiteStart SiteSession::gather(const std::function<void(const std::string&)>& say) {
  const TimePoint deadline = runtime_.clock().now() + config_.net.gather;
  TimePoint next_word = runtime_.clock().now() + kBetweenWords;
  std::vector<std::string> endpoints;
  for (const SiteConfig& site : config_.sites) endpoints.push_back("tcp://" + site.address);
  transport_->join(endpoints);
  while (true) {
    const TimePoint now = runtime_.clock().now();
    const auto joined = transport_->await_members(std::min(deadline, now + kLookForSignals));
    if (joined) {
      break;
    }
    check_signal(joined.error().what);
    if (joined.error().refused) {
      throw PeerError(joined.error().what);
    }
    if (runtime_.clock().now() >= deadline) {
      throw PeerError(fmt::format("the sites did not come together within net.gather: {}",
                                  joined.error().what));
    }
    if (runtime_.clock().now() >= next_word) {
      say(joined.error().what);
      next_word += kBetweenWords;
    }
  }

  log_info("the {} sites are together{}", config_.workers(),
           transport_->endpoint().starts_with("mpi:") ? ", over MPI"
           : config_.sites.front().key.empty()        ? ", over TCP in plain text"
                                                      : ", over encrypted TCP");
  exchange_ = std::make_unique<PeerExchange>(
      *watched_, runtime_,
      PeerExchangeOptions{
          .retry_interval = kNothingIsLost,
          .run_key = run_key(config_.run.seed, Stream::kRounding),
          .events = events_.get(),
          .on_note = [this](Rank from, std::span<const std::byte> bytes) { take(from, bytes); },
          .on_lost = [this](Rank site, const std::string& why) { lose(site, why); },
          .on_failure = [this](const std::exception_ptr& failure) { fail(failure); }});
  const HelloNote own{.run_id = facts_.run_id,
                      .resumes = facts_.resumes,
                      .held = facts_.held,
                      .common = facts_.common};
  for (int to = 0; to < config_.workers(); ++to) {
    if (Rank(to) != self_) send(Rank(to), own);
  }
  std::vector<std::string> heard;
  std::vector<HelloNote> facts;
  std::optional<std::pair<Rank, std::string>> lost;
  const auto settled = [&] {
    hellos_[static_cast<std::size_t>(self_.value())] = own;
    lost = lost_;
    return lost || failure_ ||
           std::ranges::all_of(hellos_, [](const auto& each) { return each.has_value(); });
  };
  while (!queue_->wait(settled, runtime_.clock().now() + kLookForSignals)) {
    check_signal("not all sites have said what they bring");
    if (runtime_.clock().now() >= deadline) {
      throw PeerError("not all sites have said what they bring within net.gather");
    }
  }
  std::exception_ptr failure;
  queue_->update([&] {
    failure = failure_;
    for (std::size_t m = 0; m < hellos_.size(); ++m) {
      if (!hellos_[m]) continue;
      heard.push_back(name(Rank(static_cast<int>(m))));
      facts.push_back(*hellos_[m]);
    }
  });
  if (failure) {
    std::rethrow_exception(failure);
  }
  // Who finds a difference leaves at once, and what it said has come before the news of that.
  const SiteStart start = agree_on_start(heard, facts);
  if (facts.size() == hellos_.size()) {
    return start;
  }
  throw PeerError(fmt::format("site {} is gone ({})", name(lost->first), lost->second));
}

void SiteSession::send(Rank to, const Note& note) { exchange_->note(to, write_note(note)); }

void SiteSession::take(Rank from, std::span<const std::byte> bytes) {
  const Expected<Note, std::string> note = read_note(bytes);
  if (!note) {
    throw PeerError(fmt::format("site {} sent what cannot be read: {}", name(from), note.error()));
  }
  queue_->update([&] {
    if (const auto* hello = std::get_if<HelloNote>(&*note)) {
      hellos_[static_cast<std::size_t>(from.value())] = *hello;
    } else if (on_note_) {
      on_note_(from, *note);
    } else {
      early_.emplace_back(from, *note);
    }
  });
}

void SiteSession::lose(Rank site, const std::string& why) {
  queue_->update([&] {
    if (!lost_) lost_ = {site, why};
    if (on_lost_) on_lost_(site, why);
  });
}

void SiteSession::fail(const std::exception_ptr& failure) {
  queue_->update([&] {
    failure_ = failure;
    if (on_failure_) on_failure_(failure);
  });
}

void SiteSession::connect(std::function<void(Rank, const Note&)> on_note,
                          std::function<void(Rank, const std::string&)> on_lost,
                          std::function<void(const std::exception_ptr&)> on_failure) {
  queue_->update([&] {
    on_note_ = std::move(on_note);
    on_lost_ = std::move(on_lost);
    on_failure_ = std::move(on_failure);
    for (const auto& [from, note] : std::exchange(early_, {})) on_note_(from, note);
    if (lost_) on_lost_(lost_->first, lost_->second);
    if (failure_) on_failure_(failure_);
  });
}

void SiteSession::disconnect() {
  queue_->update([&] {
    on_note_ = [](Rank, const Note&) {};
    on_lost_ = {};
    on_failure_ = {};
  });
}

void SiteSession::record_into(EventSink* events) { events_->record_into(events); }

void SiteSession::leave() { exchange_->leave(config_.outer.patience); }

}  // namespace isthmus::app
