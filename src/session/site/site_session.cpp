// SPDX-License-Identifier: Apache-2.0
#include "session/site/site_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "core/base/fault_point.h"
#include "core/base/log.h"
#include "isthmus/errors.h"
#include "session/site/site_links.h"
#include "session/site/site_routes.h"
#include "session/site/state_server.h"

namespace isthmus::app {
namespace {

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

SiteSession::SiteSession(const Config& config, const SiteArguments& arguments,
                         const SiteFacts& facts, Wishes& wishes, StatusBoard* status,
                         SiteRecording* recording)
    : all_(config, arguments, facts, wishes),
      source_({.sites = all_.names(),
               .bits_per_s = config.net.serve_bits_per_s,
               .send = [this](WorkerId to, const Note& note) { send(to, note); },
               .keeps_for = std::min<Duration>(config.net.gather, kMostKeeps)}),
      links_(all_, arguments, status, recording),
      meeting_(all_, links_, [this] { open_exchange(); }) {}

SiteStart SiteSession::gather(const std::function<void(const std::string&)>& say,
                              Meanwhile meanwhile) {
  bool goes_on = meeting_.gather(say, std::move(meanwhile));
  while (goes_on) {
    if (auto start = arrival_.come_late(meeting_.gather_end(), say)) return *std::move(start);
    goes_on = meeting_.gather_again(say);
  }
  return meeting_.start_together();
}

void SiteSession::open_exchange() {
  links_.open_exchange(
      {.on_note = [this](WorkerId from, std::span<const std::byte> bytes) { take(from, bytes); },
       .on_lost = [this](WorkerId site, const std::string& why) { lose(site, why); },
       .on_back = [this](WorkerId site) { back(site); },
       .on_epoch = [this](const Epoch& epoch) { enter(epoch); },
       .on_failure = [this](const std::exception_ptr& failure) { fail(failure); }});
}

SiteSession::~SiteSession() {
  std::unique_ptr<StateServer> server;
  {
    const std::scoped_lock lock(all_.calls);
    server = std::move(server_);
  }
}

Exchange& SiteSession::exchange() {
  if (links_.forwarding) return *links_.forwarding;
  return all_.newcomer ? static_cast<Exchange&>(all_.newcomer->exchange()) : *links_.exchange;
}

void SiteSession::take(WorkerId from, std::span<const std::byte> bytes) {
  const Expected<Note, std::string> note = read_note(bytes);
  const std::scoped_lock lock(all_.calls);
  if (!note) {
    const std::string what =
        fmt::format("site {} sent what cannot be read: {}", all_.name(from), note.error());
    bool member = true;
    const auto place = static_cast<std::size_t>(from.value());
    all_.queue->update([&] { member = place >= all_.fate.live.size() || all_.fate.live[place]; });
    if (member) throw PeerError(what);
    log_warning("{}; it cannot join", what);
    links_.send(from, TurnedAwayNote{.why = what, .configuration = true});
    return;
  }
  if (const auto* greeting = std::get_if<HelloNote>(&*note)) {
    if (host_ && !all_.has_hub()) {
      host_->hello(from, *greeting);
    } else if (listener_) {
      links_.send(from, SeenNote{});
    } else {
      all_.queue->update([&] { all_.fate.asked[static_cast<std::size_t>(from.value())] = true; });
    }
    all_.queue->update(
        [&] { all_.meeting.hellos[static_cast<std::size_t>(from.value())] = *greeting; });
  } else if (std::holds_alternative<StartNote>(*note) && from == all_.coordinator) {
    // Site 0 may have meant the process before this one.
    const auto& start = std::get<StartNote>(*note);
    const TimePoint now = all_.now();
    all_.queue->update([&] {
      if (!all_.has_hub() && start.session != all_.facts.run_id) return;
      all_.hear_start(start, all_.newcomer != nullptr);
      all_.meeting.told_at = now;
    });
  } else if (std::holds_alternative<ServeNote>(*note) && from == all_.coordinator) {
    serve();
  } else if (std::holds_alternative<RunningNote>(*note) &&
             (all_.has_hub() || from == WorkerId(0))) {
    all_.queue->update(
        [&] { all_.hear_running(std::get<RunningNote>(*note), all_.newcomer != nullptr); });
  } else if (std::holds_alternative<TurnedAwayNote>(*note) &&
             (all_.has_hub() || from == WorkerId(0))) {
    const auto& turned_away = std::get<TurnedAwayNote>(*note);
    all_.queue->update([&] {
      all_.arrival.turned_away = turned_away;
      all_.fate.over = all_.fate.over || !turned_away.again;
      all_.fate.cut_off = all_.fate.cut_off || turned_away.again;
    });
    if (all_.newcomer) all_.newcomer->fail(from, turned_away.why);
  } else if (std::holds_alternative<SeenNote>(*note)) {
    all_.queue->update(
        [&] { all_.arrival.seen_by[static_cast<std::size_t>(from.value())] = true; });
  } else if (is_to_host(*note)) {
    if (host_) host_->receive(from, *note);
  } else if (is_to_source(*note)) {
    if (all_.newcomer)
      all_.newcomer->receive(from, *note);  // a table concerns joiners and donors alone
    source_.receive(from, *note);
    if (server_) server_->wake();
  } else if (is_to_newcomer(*note)) {
    if (all_.newcomer) all_.newcomer->receive(from, *note);
  } else if (listener_) {
    listener_->on_note(from, *note);
  } else {
    early_.emplace_back(from, *note);
  }
}

void SiteSession::serve() {
  links_.exchange->tell_hub_again();
  if (host_) host_->hub_back();
  if (listener_) listener_->on_hub_back();
}

void SiteSession::enter(const Epoch& epoch) {
  all_.queue->update([&] {
    if (epoch.number >= all_.fate.newest_epoch) {
      all_.fate.newest_epoch = epoch.number;
      all_.fate.live = epoch.live;
    }
    all_.fate.leaves = all_.fate.leaves || (epoch.leaves && epoch.who == all_.self);
    all_.fate.cut_off =
        all_.fate.cut_off || (epoch.who == all_.self && !epoch.joins && epoch.after < 0);
  });
  const std::scoped_lock lock(all_.calls);
  if (listener_) {
    listener_->on_epoch(epoch);
  } else {
    early_epochs_.push_back(epoch);
  }
  if (epoch.joins) source_.forget(epoch.who);
  if (host_ && all_.has_hub() && epoch.joins) host_->entered(epoch.who, epoch.after);
  if (all_.newcomer && epoch.joins && epoch.who == all_.self) {
    all_.newcomer->admitted(epoch.after);
    all_.queue->update([&] {
      all_.fate.in_session = all_.arrival.running->session;
      all_.fate.in_run = all_.arrival.running->run_id;
    });
  }
}

void SiteSession::fail(const std::exception_ptr& failure) {
  all_.queue->update([&] { all_.fate.failure = failure; });
  const std::scoped_lock lock(all_.calls);
  if (all_.newcomer) all_.newcomer->fail(all_.self, "the links failed");
  if (listener_) listener_->on_failure(failure);
}

void SiteSession::connect(Listener listener) {
  const std::scoped_lock lock(all_.calls);
  listener_ = std::move(listener);
  for (const Epoch& epoch : std::exchange(early_epochs_, {})) listener_->on_epoch(epoch);
  for (const auto& [from, note] : std::exchange(early_, {})) listener_->on_note(from, note);
  std::optional<std::pair<WorkerId, std::string>> lost;
  std::optional<std::string> first_lost;
  std::exception_ptr failure;
  std::vector<bool> asked;
  all_.queue->update([&] {
    lost = all_.fate.lost;
    first_lost = all_.fate.first_lost;
    all_.fate.cut_off = all_.fate.cut_off || (all_.elastic && all_.fate.first_lost);
    if (all_.has_hub()) first_lost.reset();
    failure = all_.fate.failure;
    asked = all_.fate.asked;
  });
  if (lost) listener_->on_lost(lost->first, lost->second);
  if (first_lost) listener_->on_lost(WorkerId(0), *first_lost);
  if (failure) listener_->on_failure(failure);
  // A site that has started anew meanwhile waits for this note; at a start the note tells nothing
  // new.
  for (int site = 0; site < all_.config.workers() && all_.self != all_.coordinator; ++site) {
    if (asked[static_cast<std::size_t>(site)]) links_.send(WorkerId(site), SeenNote{});
  }
}

void SiteSession::disconnect() {
  const std::scoped_lock lock(all_.calls);
  host_.reset();
  listener_ = Listener{.on_note = [](WorkerId, const Note&) {},
                       .on_lost = [](WorkerId, const std::string&) {},
                       .on_epoch = [](const Epoch&) {},
                       .on_failure = [](const std::exception_ptr&) {},
                       .on_hub_back = [] {}};
}

void SiteSession::take_newcomers(const std::string& run_id,
                                 std::function<void(const WishNote&)> wish, std::int64_t window,
                                 std::int64_t total_steps) {
  if (!all_.elastic) return;
  {
    const std::scoped_lock lock(all_.calls);
    server_ = std::make_unique<StateServer>(
        all_.runtime, source_, [this](WorkerId to, const Note& note) { links_.send(to, note); },
        [this] { return links_.exchange->round_open(); });
  }
  if (!links_.forwarding) return;
  std::string session;
  all_.queue->update([&] {
    session = all_.arrival.running ? all_.arrival.running->session : all_.fate.in_session;
  });
  StateDonor::Options options{
      .self = all_.self,
      .sites = all_.names(),
      .run_id = run_id,
      .session = session,
      .own = meeting_.hello(),
      .send = [this](WorkerId to, const Note& note) { links_.send(to, note); },
      .wish = std::move(wish),
      .admit = {},
      .live =
          [this] {
            std::vector<bool> live;
            all_.queue->update([&] { live = all_.fate.live; });
            return live;
          },
      .clock_s = [this] { return in_seconds(all_.now() - links_.begin); },
      .rounds_every = all_.config.outer.H,
      .window = window,
      .total_steps = total_steps};
  if (!all_.has_hub()) {
    options.admit = [this](WorkerId joiner, std::int64_t after) {
      return links_.exchange->admit(joiner, after);
    };
  }
  const std::scoped_lock lock(all_.calls);
  host_ = std::make_unique<StateDonor>(std::move(options), source_);
  for (int site = 1; site < all_.config.workers() && !all_.has_hub(); ++site) {
    std::optional<HelloNote> waits;  // a site that has come since the start
    all_.queue->update([&] {
      if (!all_.fate.live[static_cast<std::size_t>(site)])
        waits = all_.meeting.hellos[static_cast<std::size_t>(site)];
    });
    if (waits) host_->hello(WorkerId(site), *waits);
  }
}

bool SiteSession::admit(StepIndex t) {
  StateDonor* const host = this->host();
  return host != nullptr && host->agreed(t.value());
}

void SiteSession::after_step(StepIndex t, InnerLoop& inner, const OuterStrategy& strategy,
                             bool stands) {
  reach(FaultPoint::kApplied);
  if (StateDonor* const host = this->host())
    host->after_step(t, inner, strategy, *links_.forwarding, stands);
  source_.expire(all_.now());
  if (all_.elastic) source_.after_step(t, inner, strategy);
  links_.exchange->drop_origin();  // who retains or forwards results has them since `wait`
}

void SiteSession::gone_back(StepIndex t) {
  if (StateDonor* const host = this->host()) host->gone_back(t);
}

void SiteSession::leave() {
  {
    const std::scoped_lock lock(all_.calls);
    bool leaves = false;
    all_.queue->update([&] { leaves = all_.fate.leaves; });
    if (host_) host_->close(leaves);
  }
  links_.exchange->leave(all_.config.outer.patience);
  if (links_.routes) links_.routes->finish_in_order();
}

// The new process has received none of the bytes that were sent to the earlier one.
void SiteSession::back(WorkerId site) {
  if (all_.has_hub() && site == all_.coordinator) {
    const std::scoped_lock lock(all_.calls);
    std::string session, run_id;
    all_.queue->update([&] {
      all_.meeting.greeted[static_cast<std::size_t>(site.value())] = false;
      session = all_.fate.in_session;
      run_id = all_.fate.in_run;
      if (session.empty() && all_.newcomer) {  // the hub before may have taken it in untold
        session = all_.arrival.running->session;
        run_id = all_.arrival.running->run_id;
      }
    });
    if (session.empty()) return;
    links_.send(
        site,
        StandingNote{.run_id = run_id, .session = session, .decided = links_.exchange->decided()});
    return;
  }
  all_.queue->update([&] {
    ++all_.meeting.returns[static_cast<std::size_t>(site.value())];
    all_.meeting.away[static_cast<std::size_t>(site.value())] = false;
    all_.meeting.greeted[static_cast<std::size_t>(site.value())] = false;
    all_.meeting.hellos[static_cast<std::size_t>(site.value())].reset();
    all_.arrival.seen_by[static_cast<std::size_t>(site.value())] = false;
    if (all_.fate.lost && all_.fate.lost->first == site) all_.fate.lost.reset();
  });
}

void SiteSession::lose(WorkerId site, const std::string& why) {
  const std::scoped_lock lock(all_.calls);
  if (site != all_.coordinator || !all_.has_hub()) {
    // With a hub only a newcomer needs one of the others.
    const bool needed = site == all_.donor() && (!all_.has_hub() || all_.newcomer);
    bool meets = false;
    const TimePoint now = all_.now();
    all_.queue->update([&] {
      meets = all_.meeting.meets;
      all_.meeting.away[static_cast<std::size_t>(site.value())] = true;
      if (!all_.fate.lost) all_.fate.lost = {site, why};
      if (needed && !all_.fate.first_lost) all_.fate.first_lost_at = now;
      if (needed) all_.fate.first_lost = why;
      if (needed && (listener_ || all_.has_hub()) && all_.elastic) all_.fate.cut_off = true;
    });
    // The notes of the earlier process were about an earlier run.
    if (meets) std::erase_if(early_, [&](const auto& each) { return each.first == site; });
    if (host_) host_->lost(site);
    source_.lost(site, all_.now());
    if (all_.newcomer && needed) all_.newcomer->fail(site, why);
    if (all_.newcomer && !needed) all_.newcomer->lost(site);
  }
  if (listener_) listener_->on_lost(site, why);
}

bool SiteSession::cut_off() {
  constexpr Duration kNewsTakes = std::chrono::seconds(2);
  bool cut_off = false;
  (void)all_.queue->wait(
      [&] {
        cut_off = all_.fate.cut_off && !all_.fate.over;
        return !all_.elastic || all_.fate.cut_off || all_.fate.over || all_.fate.failure;
      },
      all_.now() + kNewsTakes);
  return cut_off;
}

StateDonor* SiteSession::host() {
  const std::scoped_lock lock(all_.calls);
  return host_.get();
}

}  // namespace isthmus::app
