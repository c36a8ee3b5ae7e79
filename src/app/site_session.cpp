// SPDX-License-Identifier: Apache-2.0
#include "app/site_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>

#include "app/owner_shares.h"
#include "app/run_parts.h"
#include "app/run_worlds.h"
#include "app/site_links.h"
#include "app/site_recording.h"
#include "app/site_routes.h"
#include "app/status_board.h"
#include "app/watched_transport.h"
#include "core/fault_point.h"
#include "core/log.h"
#include "isthmus/errors.h"
#include "transport/link_allowance.h"
#include "transport/mpi_transport.h"
#include "transport/zmq_transport.h"

namespace isthmus::app {
namespace {

MemberOptions session_links(const Config& config, const SiteArguments& arguments, Rank self,
                            StatusBoard* status, bool elastic, FrameRecorder* recorder) {
  MemberOptions options = link_options(config, arguments, self, status);
  record_connections(options, recorder);
  if (has_hub(config, arguments)) add_hub(config, options);
  if (elastic) let_come_back(options);
  spare_detours(options);
  return options;
}

bool is_to_host(const Note& note) {
  return std::holds_alternative<JoinNote>(note) || std::holds_alternative<TakenNote>(note) ||
         std::holds_alternative<CaughtUpNote>(note);
}

bool is_to_source(const Note& note) {
  return std::holds_alternative<PrepareNote>(note) || std::holds_alternative<TableNote>(note) ||
         std::holds_alternative<GetNote>(note) || std::holds_alternative<EnoughNote>(note);
}

bool is_to_newcomer(const Note& note) {
  return std::holds_alternative<OfferNote>(note) || std::holds_alternative<HoldsNote>(note) ||
         std::holds_alternative<PieceNote>(note) || std::holds_alternative<ResultNote>(note) ||
         std::holds_alternative<ReachedNote>(note);
}

}  // namespace

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
                         const SiteFacts& facts, StatusBoard* status, SiteRecording* recording)
    : config_(config),
      self_(site_of(config, arguments)),
      coordinator_(coordinator_of(config, arguments)),
      facts_(facts),
      elastic_(is_elastic(config, arguments)),
      takes_back_(takes_steps_back(config, arguments)),
      queue_(runtime_.make_wait_queue()),
      hellos_(config.sites.size()),
      greeted_(config.sites.size() + 1, false),
      away_(config.sites.size(), false),
      returns_(config.sites.size(), 0),
      live_(config.sites.size(), true),
      asked_(config.sites.size(), false),
      seen_by_(config.sites.size(), false),
      source_({.sites = names(),
               .bits_per_s = config.net.serve_bits_per_s,
               .send = [this](Rank to, const Note& note) { send(to, note); },
               .keeps_for = std::min<Duration>(config.net.gather, kMostKeeps)}),
      begin_(runtime_.clock().now()),
      events_(std::make_unique<Events>()),
      recorder_(recording == nullptr ? nullptr : &recording->open(self_, names(), has_hub())),
      links_(arguments.mpi ? MemberOptions()
                           : session_links(config, arguments, self_, status, elastic_, recorder_)),
      transport_(arguments.mpi ? make_mpi_transport(runtime_, config.net.dead_after)
                               : make_zmq_transport(runtime_, links_)),
      recording_(recorder_ == nullptr
                     ? nullptr
                     : std::make_unique<RecordingTransport>(*transport_, *recorder_)),
      watched_(std::make_unique<WatchedTransport>(
          recording_ ? static_cast<Transport&>(*recording_) : *transport_, status)) {
  if (status != nullptr && config.net.deadline) {
    lateness_.watch([status](const LateStatus& late) { status->late(late); });
  }
  if (!arguments.mpi) {
    routes_ = std::make_unique<SiteRoutes>(runtime_, config.sites, links_, transport_->endpoint(),
                                           told_keys_of(*transport_), HubRelay{config.hub.relay});
  }
}

SiteSession::~SiteSession() {
  std::unique_ptr<StateServer> server;
  {
    const std::scoped_lock lock(calls_);
    server = std::move(server_);
  }
}

std::vector<std::string> SiteSession::names() const {
  std::vector<std::string> names;
  for (const SiteConfig& site : config_.sites) names.push_back(site.name);
  return names;
}

std::string SiteSession::name(Rank site) const {
  const auto place = static_cast<std::size_t>(site.value());
  return place < config_.sites.size() ? config_.sites[place].name : "hub";
}

Rank SiteSession::donor() const {
  Rank donor(0);
  queue_->update([&] {
    if (has_hub() && running_) donor = donor_.value_or(Rank(running_->donor));
  });
  return donor;
}

Exchange& SiteSession::exchange() {
  if (forwarding_) return *forwarding_;
  return newcomer_ ? static_cast<Exchange&>(newcomer_->exchange()) : *exchange_;
}

void SiteSession::open_exchange() {
  exchange_ = std::make_unique<PeerExchange>(
      *watched_, runtime_,
      PeerExchangeOptions{
          .retry_interval = kNothingIsLost,
          .shares = routes_ ? first_shares(config_) : owner_shares(config_),
          .table = table_of_shares(config_),
          .groups = site_groups(config_),
          .chunk_bytes = chunk_bytes(config_),
          .run_key = run_key(config_.run.seed, Stream::kRounding),
          .events = events_.get(),
          .elastic = elastic_,
          .min_members = config_.min_sites(),
          .takes_back = takes_back_,
          .straggler = config_.outer.patience - config_.outer.patience / 8,
          .asks_after = std::chrono::minutes(1),
          .hub = has_hub(),
          .keeps_encoded =
              retains_results(config_) || (elastic_ && (has_hub() || self_ == Rank(0))),
          .gathers = first_starts(),
          .on_note = [this](Rank from, std::span<const std::byte> bytes) { take(from, bytes); },
          .on_lost = [this](Rank site, const std::string& why) { lose(site, why); },
          .on_back = [this](Rank site) { back(site); },
          .on_epoch = [this](const Epoch& epoch) { enter(epoch); },
          .on_failure = [this](const std::exception_ptr& failure) { fail(failure); },
          .moves_shares = config_.net.shares == "measured",
          .on_shares = [this](const ShareMove& m) { log_info("{}", words_of(m, names())); },
          .connections = most_streams(links_),
          .deadline = round_deadline(config_),
          .may_stand_in = [this](StepIndex sent) { return lateness_.may_stand_in(sent); },
          .on_stood_in = [this](const StoodIn& round) { lateness_.stood_in(round); },
          .on_round = [this](Rank, const SyncId& id, Duration took) { rounds_.took(id, took); }});
}

void SiteSession::send(Rank to, const Note& note) { exchange_->note(to, write_note(note)); }

void SiteSession::take(Rank from, std::span<const std::byte> bytes) {
  const Expected<Note, std::string> note = read_note(bytes);
  const std::scoped_lock lock(calls_);
  if (!note) {
    const std::string what =
        fmt::format("site {} sent what cannot be read: {}", name(from), note.error());
    bool member = true;
    const auto place = static_cast<std::size_t>(from.value());
    queue_->update([&] { member = place >= live_.size() || live_[place]; });
    if (member) throw PeerError(what);
    log_warning("{}; it cannot join", what);
    send(from, TurnedAwayNote{.why = what, .configuration = true});
    return;
  }
  if (const auto* greeting = std::get_if<HelloNote>(&*note)) {
    if (host_ && !has_hub()) {
      host_->hello(from, *greeting);
    } else if (listener_) {
      send(from, SeenNote{});
    } else {
      queue_->update([&] { asked_[static_cast<std::size_t>(from.value())] = true; });
    }
    queue_->update([&] { hellos_[static_cast<std::size_t>(from.value())] = *greeting; });
  } else if (std::holds_alternative<StartNote>(*note) && from == coordinator_) {
    // Site 0 may have meant the process before this one.
    const auto& start = std::get<StartNote>(*note);
    const TimePoint now = runtime_.clock().now();
    queue_->update([&] {
      if (!has_hub() && start.session != facts_.run_id) return;
      start_ = start;
      told_at_ = now;
    });
  } else if (std::holds_alternative<ServeNote>(*note) && from == coordinator_) {
    serve();
  } else if (std::holds_alternative<RunningNote>(*note) && (has_hub() || from == Rank(0))) {
    queue_->update([&] { running_ = std::get<RunningNote>(*note); });
  } else if (std::holds_alternative<TurnedAwayNote>(*note) && (has_hub() || from == Rank(0))) {
    const auto& turned_away = std::get<TurnedAwayNote>(*note);
    queue_->update([&] {
      turned_away_ = turned_away;
      over_ = over_ || !turned_away.again;
      cut_off_ = cut_off_ || turned_away.again;
    });
    if (newcomer_) newcomer_->fail(from, turned_away.why);
  } else if (std::holds_alternative<SeenNote>(*note)) {
    queue_->update([&] { seen_by_[static_cast<std::size_t>(from.value())] = true; });
  } else if (is_to_host(*note)) {
    if (host_) host_->receive(from, *note);
  } else if (is_to_source(*note)) {
    if (newcomer_) newcomer_->receive(from, *note);  // a table is for who joins, and who gives
    source_.receive(from, *note);
    if (server_) server_->wake();
  } else if (is_to_newcomer(*note)) {
    if (newcomer_) newcomer_->receive(from, *note);
  } else if (listener_) {
    listener_->on_note(from, *note);
  } else {
    early_.emplace_back(from, *note);
  }
}

void SiteSession::serve() {
  exchange_->tell_hub_again();
  if (host_) host_->hub_back();
  if (listener_) listener_->on_hub_back();
}

void SiteSession::enter(const Epoch& epoch) {
  queue_->update([&] {
    if (epoch.number >= newest_epoch_) {
      newest_epoch_ = epoch.number;
      live_ = epoch.live;
    }
    leaves_ = leaves_ || (epoch.leaves && epoch.who == self_);
    cut_off_ = cut_off_ || (epoch.who == self_ && !epoch.joins && epoch.after < 0);
  });
  const std::scoped_lock lock(calls_);
  if (listener_) {
    listener_->on_epoch(epoch);
  } else {
    early_epochs_.push_back(epoch);
  }
  if (epoch.joins) source_.forget(epoch.who);
  if (host_ && has_hub() && epoch.joins) host_->entered(epoch.who, epoch.after);
  if (newcomer_ && epoch.joins && epoch.who == self_) {
    newcomer_->admitted(epoch.after);
    queue_->update([&] {
      in_session_ = running_->session;
      in_run_ = running_->run_id;
    });
  }
}

void SiteSession::fail(const std::exception_ptr& failure) {
  queue_->update([&] { failure_ = failure; });
  const std::scoped_lock lock(calls_);
  if (newcomer_) newcomer_->fail(self_, "the links failed");
  if (listener_) listener_->on_failure(failure);
}

void SiteSession::connect(Listener listener) {
  const std::scoped_lock lock(calls_);
  listener_ = std::move(listener);
  for (const Epoch& epoch : std::exchange(early_epochs_, {})) listener_->on_epoch(epoch);
  for (const auto& [from, note] : std::exchange(early_, {})) listener_->on_note(from, note);
  std::optional<std::pair<Rank, std::string>> lost;
  std::optional<std::string> first_lost;
  std::exception_ptr failure;
  std::vector<bool> asked;
  queue_->update([&] {
    lost = lost_;
    first_lost = first_lost_;
    cut_off_ = cut_off_ || (elastic_ && first_lost_);
    if (has_hub()) first_lost.reset();
    failure = failure_;
    asked = asked_;
  });
  if (lost) listener_->on_lost(lost->first, lost->second);
  if (first_lost) listener_->on_lost(Rank(0), *first_lost);
  if (failure) listener_->on_failure(failure);
  // One that has been started anew meanwhile waits for a word; at a start it says nothing new.
  for (int site = 0; site < config_.workers() && self_ != coordinator_; ++site) {
    if (asked[static_cast<std::size_t>(site)]) send(Rank(site), SeenNote{});
  }
}

void SiteSession::disconnect() {
  const std::scoped_lock lock(calls_);
  host_.reset();
  listener_ = Listener{.on_note = [](Rank, const Note&) {},
                       .on_lost = [](Rank, const std::string&) {},
                       .on_epoch = [](const Epoch&) {},
                       .on_failure = [](const std::exception_ptr&) {},
                       .on_hub_back = [] {}};
}

void SiteSession::take_newcomers(const std::string& run_id,
                                 std::function<void(const WishNote&)> wish, std::int64_t window,
                                 std::int64_t total_steps) {
  if (!elastic_) return;
  {
    const std::scoped_lock lock(calls_);
    server_ = std::make_unique<StateServer>(
        runtime_, source_, [this](Rank to, const Note& note) { send(to, note); },
        [this] { return exchange_->round_open(); });
  }
  if (!forwarding_) return;
  std::string session;
  queue_->update([&] { session = running_ ? running_->session : in_session_; });
  JoinHost::Options options{
      .self = self_,
      .sites = names(),
      .run_id = run_id,
      .session = session,
      .own = hello(),
      .send = [this](Rank to, const Note& note) { send(to, note); },
      .wish = std::move(wish),
      .admit = {},
      .live =
          [this] {
            std::vector<bool> live;
            queue_->update([&] { live = live_; });
            return live;
          },
      .clock_s =
          [this] { return std::chrono::duration<double>(runtime_.clock().now() - begin_).count(); },
      .rounds_every = config_.outer.H,
      .window = window,
      .total_steps = total_steps};
  if (!has_hub()) {
    options.admit = [this](Rank joiner, std::int64_t after) {
      return exchange_->admit(joiner, after);
    };
  }
  const std::scoped_lock lock(calls_);
  host_ = std::make_unique<JoinHost>(std::move(options), source_);
  for (int site = 1; site < config_.workers() && !has_hub(); ++site) {
    std::optional<HelloNote> waits;  // who has come since the start
    queue_->update([&] {
      if (!live_[static_cast<std::size_t>(site)]) waits = hellos_[static_cast<std::size_t>(site)];
    });
    if (waits) host_->hello(Rank(site), *waits);
  }
}

bool SiteSession::admit(StepIndex t) {
  JoinHost* const host = this->host();
  return host != nullptr && host->agreed(t.value());
}

void SiteSession::after_step(StepIndex t, InnerLoop& inner, const OuterStrategy& strategy,
                             bool stands) {
  reach(FaultPoint::kApplied);
  if (JoinHost* const host = this->host())
    host->after_step(t, inner, strategy, *forwarding_, stands);
  source_.expire(runtime_.clock().now());
  if (elastic_) source_.after_step(t, inner, strategy);
}

void SiteSession::gone_back(StepIndex t) {
  if (JoinHost* const host = this->host()) host->gone_back(t);
}

void SiteSession::record_into(EventSink* events) { events_->record_into(events); }

void SiteSession::leave() {
  {
    const std::scoped_lock lock(calls_);
    bool leaves = false;
    queue_->update([&] { leaves = leaves_; });
    if (host_) host_->close(leaves);
  }
  exchange_->leave(config_.outer.patience);
  if (routes_) routes_->finish_in_order();
}

}  // namespace isthmus::app
