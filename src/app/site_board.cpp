// SPDX-License-Identifier: Apache-2.0
#include "app/site_board.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "app/build_info.h"
#include "app/site_routes.h"
#include "app/status_board.h"
#include "core/log.h"
#include "isthmus/errors.h"

namespace isthmus::app {
namespace {

/// Steps are told together; this long at most after they were taken.
constexpr Duration kBatchTime = std::chrono::seconds(1);
constexpr std::size_t kBatchSteps = 256;
constexpr std::size_t kBatchRounds = 2048;  // far below what a frame holds
/// How far ahead a site promises to wait: longer than notes take to come and go.
constexpr Duration kLookAhead = std::chrono::milliseconds(500);
constexpr std::int64_t kLongestLookAhead = 1000;  // steps
/// Over which the length of a step is taken: steps that a slow site skips take no time.
constexpr Duration kWindow = std::chrono::seconds(1);

}  // namespace

SiteBoard::SiteBoard(Options options, Runtime& runtime, RunLog& log)
    : options_(std::move(options)),
      runtime_(runtime),
      start_(runtime.clock().now()),
      whole_(static_cast<int>(options_.sites.size()), options_.total_steps, log),
      queue_(runtime.make_wait_queue()),
      agreement_(options_.self, static_cast<int>(options_.sites.size()), options_.total_steps,
                 options_.resumed_after, options_.min_sites, options_.coordinator),
      outer_({.self = options_.self,
              .sites = options_.sites,
              .about = options_.about,
              .resumed_after = options_.resumed_after,
              .joining = options_.joining}),
      live_(options_.sites.size(), !options_.joining),
      after_(options_.sites.size(), -1),
      early_(options_.sites.size()),
      until_(options_.sites.size()),
      told_(options_.sites.size(), options_.resumed_after),
      evaluated_(options_.sites.size(), options_.resumed_after),
      last_sent_(start_),
      window_begin_(start_) {
  whole_.attach(runtime);
  agreement_.set_window(options_.window);
  if (options_.joining) whole_.stand_by();
}

void SiteBoard::attach(Runtime&) {}

TimePoint SiteBoard::now() const { return runtime_.clock().now(); }

void SiteBoard::drive(const std::function<void(NotesOut&)>& step) {
  NotesOut out;
  std::optional<StepIndex> join;
  std::optional<std::pair<Rank, StepIndex>> leave;
  std::optional<std::string> refusal;
  queue_->update([&] {
    step(out);
    join = agreement_.take_join();
    leave = agreement_.take_leave();
    refusal = agreement_.take_refusal();
    admitting_ = admitting_ || join || leave;
  });
  if (refusal) {
    SignalScope::refuse_leave();
    log_warning("this site cannot leave: {}; it goes on", *refusal);
  }
  const bool joins = join && options_.on_join && options_.on_join(*join);
  const bool leaves = leave && options_.on_leave && options_.on_leave(leave->first, leave->second);
  for (const auto& [to, note] : out) {
    options_.send(to, note);
  }
  if ((join && !joins) || (leave && !leaves)) {
    queue_->update([&] { admitting_ = false; });
  }
  if (leave && !leaves) {
    drive([&](NotesOut& more) {
      agreement_.stays(leave->first, "somebody else has gone meanwhile", more);
    });
  }
}

void SiteBoard::tell_others(const Note& note) const {
  std::vector<bool> live;
  queue_->update([&] { live = live_; });
  for (int to = 0; to < static_cast<int>(live.size()); ++to) {
    if (Rank(to) != options_.self && live[static_cast<std::size_t>(to)]) {
      options_.send(Rank(to), note);
    }
  }
}

bool SiteBoard::takes_part(StepIndex t) const {
  const auto self = static_cast<std::size_t>(options_.self.value());
  bool yes = false;
  queue_->update([&] { yes = live_[self] && after_[self] < t.value(); });
  return yes;
}

const std::string& SiteBoard::name(Rank site) const {
  return options_.sites[static_cast<std::size_t>(site.value())];
}

void SiteBoard::post_step(Rank rank, StepIndex t, StepPost post) {
  if (!takes_part(t)) {
    return;
  }
  post.report.step = t;
  post.now = TimePoint(post.now - start_);
  unsent_rounds_ += post.report.rounds.size();
  unsent_.posts.push_back(post);
  whole_.post_step(rank, t, std::move(post));
  const bool last = t.value() == options_.total_steps;
  if (last || unsent_.posts.size() >= kBatchSteps || unsent_rounds_ >= kBatchRounds) flush();
}

// Steps that are committed together go together: who dies before the next commit has told of all.
void SiteBoard::posted_steps() {
  if (now() - last_sent_ >= kBatchTime) flush();
}

void SiteBoard::flush() {
  last_sent_ = now();
  if (unsent_.posts.empty()) {
    return;
  }
  unsent_rounds_ = 0;
  tell_others(std::exchange(unsent_, {}));
}

void SiteBoard::await_lines(StepIndex t) {
  flush();
  if (!whole_.await_lines(t)) {
    explain();
  }
}

void SiteBoard::post_eval(Rank rank, StepIndex t, const EvalShare& share) {
  if (!takes_part(t)) {
    return;
  }
  flush();  // the step it follows comes first
  const TimePoint since_start(share.now - start_);
  whole_.post_eval(rank, t, {share.parts, share.batches, since_start});
  tell_others(EvalNote{t, share.parts, since_start});
}

std::vector<std::int64_t> SiteBoard::await_eval(StepIndex t) {
  if (!options_.elastic) {
    return {};
  }
  const auto missing = whole_.await_missing(t);
  if (!missing) {
    explain();
  }
  return missing.value_or(std::vector<std::int64_t>());
}

void SiteBoard::complete_eval(StepIndex t, const std::vector<EvalPart>& missing) {
  whole_.complete_eval(t, missing);
}

bool SiteBoard::asks_by_time() const {
  if (!has_hub()) return options_.self == Rank(0);
  const auto first = std::ranges::find(live_, true);
  return first - live_.begin() == options_.self.value();
}

bool SiteBoard::begin_step(Rank, StepIndex t, bool checkpoint_due) {
  explain();
  const bool stands = stands_with_.has_value();  // asked before
  if (const Duration window = now() - window_begin_; window >= kWindow && !stands) {
    const std::int64_t ahead = kLookAhead * std::exchange(window_steps_, 0) / window + 1;
    queue_->update([&] { agreement_.look_ahead(std::min(ahead, kLongestLookAhead)); });
    window_begin_ += window;
  }
  if (!stands) ++window_steps_;
  const bool leave = SignalScope::take_leave();
  if (leave && !options_.elastic) {
    SignalScope::refuse_leave();
    log_warning(
        "this site cannot leave: a site that goes ends this run (net.min_sites = N lets "
        "the others go on); it goes on");
  }
  drive([&](NotesOut& out) {
    if (const StopWish wish = SignalScope::wish(); wish != StopWish::kNone) {
      agreement_.wish(wish == StopWish::kRequeue ? Purpose::kRequeue : Purpose::kInterrupt, out);
    }
    if (checkpoint_due && asks_by_time() && !stands) {
      agreement_.wish(Purpose::kCheckpoint, out);
    }
    if (leave && options_.elastic) agreement_.wish(Purpose::kLeave, out);
  });
  bool may = begun_ahead_ == t;
  bool too_few = false, ends = false;
  const TimePoint deadline = has_hub() ? now() + options_.patience : kNever;
  (void)queue_->wait(
      [&] {
        may = may || (!admitting_ && agreement_.begin(t));
        too_few = !may && agreement_.waits(t);
        ends = agreement_.ends_before(t);
        return may || too_few || ends || lost_ || failure_;
      },
      deadline);
  if (may && stands) go_on();
  if (too_few) stand_still(t);
  if (!may && !too_few && !ends) {
    explain();
    throw PeerError(fmt::format(
        "the hub has not said within net.patience whether step {} may begin", t.value()));
  }
  return may;
}

bool SiteBoard::may_begin(StepIndex t) {
  if (may_stand_in(t)) begun_ahead_ = t;
  return begun_ahead_ == t;
}

bool SiteBoard::may_stand_in(StepIndex sent) {
  bool may = false;
  queue_->update([&] { may = !admitting_ && !lost_ && !failure_ && agreement_.begin(sent); });
  return may;
}

void SiteBoard::wish_join(const WishNote& note) {
  drive([&](NotesOut& out) { agreement_.wish_join(note, out); });
}

void SiteBoard::hub_back() {
  log_info("the hub is back");
  drive([&](NotesOut& out) { agreement_.hub_back(out); });
}

bool SiteBoard::checkpoint_after(StepIndex t) {
  bool due = false;
  // Where somebody joins or leaves, so that all have a checkpoint in common and are compared.
  queue_->update([&] { due = agreement_.checkpoint_after(t) || agreement_.change_after(t); });
  return due;
}

std::optional<std::pair<std::int64_t, Purpose>> SiteBoard::end() const {
  std::optional<std::pair<std::int64_t, Purpose>> end;
  queue_->update([&] {
    end = agreement_.stop();
    if (leaves_after_ && (!end || *leaves_after_ < end->first)) {
      end = {*leaves_after_, Purpose::kLeave};
    }
  });
  return end;
}

StopWish SiteBoard::stop_after(StepIndex t) {
  const auto end = this->end();
  return end && end->first == t.value() ? stopped() : StopWish::kNone;
}

StopWish SiteBoard::stopped() const {
  const auto end = this->end();
  if (!end) return StopWish::kNone;
  return end->second == Purpose::kInterrupt ? StopWish::kInterrupt : StopWish::kRequeue;
}

void SiteBoard::check() const {
  std::optional<std::string> difference;
  std::exception_ptr failure;
  queue_->update([&] {
    difference = outer_.difference();
    failure = failure_;
  });
  if (difference) {
    throw Error(ExitCode::kPeer, *difference);  // no PeerError: nobody comes back from it
  }
  if (failure) {
    std::rethrow_exception(failure);
  }
}

void SiteBoard::explain() const {
  check();
  std::optional<std::string> lost;
  queue_->update([&] { lost = lost_; });
  if (lost) {
    throw PeerError(*lost);
  }
}

void SiteBoard::fail(const std::exception_ptr& failure) {
  queue_->update([&] {
    if (!failure_) failure_ = failure;
  });
  whole_.abandon();
}

std::unique_ptr<SiteBoard> make_site_board(SiteSession& session, const Config& config,
                                           std::int64_t total_steps, std::int64_t taken,
                                           RunLog& log, StatusBoard* status) {
  SiteBoard::Options options{
      .self = session.self(),
      .sites = {},
      .total_steps = total_steps,
      .resumed_after = taken,
      .send = [&session](Rank to, const Note& note) { session.send(to, note); },
      .elastic = session.elastic(),
      .min_sites = config.min_sites(),
      .gather = config.net.gather,
      .takes_in = [&session] { return session.takes_in(); },
      .on_wait =
          [status](const std::string& for_whom) {
            if (status != nullptr) status->stands_still(for_whom);
          },
      .window = join_window(config) + 1,
      .relays = needed_relays(config),
      .hidden = hidden_sites(config.sites),
      .coordinator = session.coordinator(),
      .patience = config.outer.patience,
      .joining = session.newcomer() != nullptr,
      .about = fmt::format("{} on {}", program_version(), machine_info().cpu),
      .on_join = [&session](StepIndex t) { return session.admit(t); },
      .on_leave = [&session](Rank site, StepIndex t) { return session.release(site, t); }};
  for (const SiteConfig& site : config.sites) {
    options.sites.push_back(site.name);
  }
  return std::make_unique<SiteBoard>(std::move(options), session.runtime(), log);
}

SiteConnection::SiteConnection(SiteSession* session, SiteBoard* board) : session_(session) {
  if (session_ != nullptr) {
    session_->connect(
        {.on_note = [board](Rank from, const Note& note) { board->receive(from, note); },
         .on_lost = [board](Rank site, const std::string& why) { board->lost(site, why); },
         .on_epoch = [board](const Epoch& epoch) { board->epoch(epoch); },
         .on_failure = [board](const std::exception_ptr& failure) { board->fail(failure); },
         .on_hub_back = [board] { board->hub_back(); }});
    session_->lateness().ask([board](StepIndex sent) { return board->may_stand_in(sent); });
  }
}

SiteConnection::~SiteConnection() {
  if (session_ != nullptr) {
    session_->lateness().ask({});
    session_->disconnect();
  }
}

}  // namespace isthmus::app
