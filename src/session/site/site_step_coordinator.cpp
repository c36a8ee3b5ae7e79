// SPDX-License-Identifier: Apache-2.0
#include "session/site/site_step_coordinator.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/base/log.h"
#include "isthmus/errors.h"

namespace isthmus::app {
namespace {

/// Steps are told together; this long at most after they were taken.
constexpr Duration kBatchTime = std::chrono::seconds(1);
constexpr std::size_t kBatchSteps = 256;
constexpr std::size_t kBatchRounds = 2048;  // far below the limit of a frame
/// How far ahead a site promises to wait: longer than notes take to come and go.
constexpr Duration kLookAhead = std::chrono::milliseconds(500);
constexpr std::int64_t kLongestLookAhead = 1000;  // steps
/// Over which the length of a step is taken: steps that a slow site skips take no time.
constexpr Duration kWindow = std::chrono::seconds(1);

}  // namespace

SiteStepCoordinator::SiteStepCoordinator(Options options, Runtime& runtime, RunLog& log)
    : start_(runtime.clock().now()),
      all_(std::move(options), runtime, log),
      last_sent_(start_),
      window_begin_(start_) {}

void SiteStepCoordinator::attach(Runtime&) {}

void SiteStepCoordinator::post_step(WorkerId rank, StepIndex t, StepPost post) {
  if (!all_.takes_part(t)) {
    return;
  }
  post.report.step = t;
  post.now = TimePoint(post.now - start_);
  unsent_rounds_ += post.report.rounds.size();
  unsent_.posts.push_back(post);
  all_.whole.post_step(rank, t, std::move(post));
  const bool last = t.value() == all_.options.total_steps;
  if (last || unsent_.posts.size() >= kBatchSteps || unsent_rounds_ >= kBatchRounds) flush();
}

// Steps that are committed together are told together: a site that dies before the next commit has
// told of all of them.
void SiteStepCoordinator::posted_steps() {
  if (all_.now() - last_sent_ >= kBatchTime) flush();
}

void SiteStepCoordinator::flush() {
  last_sent_ = all_.now();
  if (unsent_.posts.empty()) {
    return;
  }
  unsent_rounds_ = 0;
  all_.tell_others(std::exchange(unsent_, {}));
}

void SiteStepCoordinator::await_lines(StepIndex t) {
  flush();
  if (!all_.whole.await_lines(t)) {
    explain();
  }
}

void SiteStepCoordinator::post_eval(WorkerId rank, StepIndex t, const EvalShare& share) {
  if (!all_.takes_part(t)) {
    return;
  }
  flush();  // the step it follows comes first
  const TimePoint since_start(share.now - start_);
  all_.whole.post_eval(rank, t, {share.parts, share.batches, since_start});
  all_.tell_others(EvalNote{t, share.parts, since_start});
}

std::vector<std::int64_t> SiteStepCoordinator::await_eval(StepIndex t) {
  if (!all_.options.elastic) {
    return {};
  }
  const auto missing = all_.whole.await_missing(t);
  if (!missing) {
    explain();
  }
  return missing.value_or(std::vector<std::int64_t>());
}

bool SiteStepCoordinator::asks_by_time() const {
  if (!all_.has_hub()) return all_.options.self == WorkerId(0);
  const auto first = std::ranges::find(all_.live, true);
  return first - all_.live.begin() == all_.options.self.value();
}

void SiteStepCoordinator::look_ahead(StepIndex t) {
  if (const Duration window = all_.now() - window_begin_; window >= kWindow) {
    const std::int64_t ahead = kLookAhead * std::exchange(window_steps_, 0) / window + 1;
    all_.queue->update([&] { all_.agreement.look_ahead(std::min(ahead, kLongestLookAhead)); });
    window_begin_ += window;
  }
  // Steps that were begun ahead are not looked at one by one.
  const bool first = looked_at_ == StepIndex(0);
  window_steps_ += first ? 1 : std::max<std::int64_t>(1, t.value() - looked_at_.value());
  looked_at_ = t;
}

bool SiteStepCoordinator::begin_step(WorkerId, StepIndex t, bool checkpoint_due) {
  explain();
  const bool stands = standstill_.stands();  // asked before
  if (!stands) look_ahead(t);
  Wishes& wishes = all_.wishes;
  const bool leave = wishes.take_leave();
  if (leave && !all_.options.elastic) {
    wishes.refuse_leave();
    log_warning(
        "this site cannot leave: a site that goes ends this run (net.min_sites = N lets "
        "the others go on); it goes on");
  }
  all_.drive([&](NotesOut& out) {
    if (const StopWish wish = wishes.stop(); wish != StopWish::kNone) {
      all_.agreement.wish(wish == StopWish::kRequeue ? Purpose::kRequeue : Purpose::kInterrupt,
                          out);
    }
    const bool by_time = checkpoint_due && asks_by_time();
    if (!stands && (wishes.take_checkpoint() || by_time)) {
      all_.agreement.wish(Purpose::kCheckpoint, out);
    }
    if (leave && all_.options.elastic) all_.agreement.wish(Purpose::kLeave, out);
  });
  bool may = begun_ahead_ == t;
  bool too_few = false, ends = false;
  const TimePoint deadline = all_.has_hub() ? all_.now() + all_.options.patience : kNever;
  (void)all_.queue->wait(
      [&] {
        may = may || (!all_.admitting && all_.agreement.begin(t));
        too_few = !may && all_.agreement.waits(t);
        ends = all_.agreement.ends_before(t);
        return may || too_few || ends || all_.lost || all_.failure;
      },
      deadline);
  if (may && stands) {
    standstill_.end();
    window_begin_ = all_.now();
    window_steps_ = 0;
  }
  if (too_few) standstill_.wait(t);
  if (!may && !too_few && !ends) {
    explain();
    throw PeerError(fmt::format(
        "the hub has not said within net.patience whether step {} may begin", t.value()));
  }
  return may;
}

bool SiteStepCoordinator::outer_agrees(StepIndex t, const Digest128& digest) {
  flush();
  tell_outer(t, digest);
  return settling_.agrees(t);
}

bool SiteStepCoordinator::may_begin(StepIndex t) {
  if (may_stand_in(t)) begun_ahead_ = t;
  return begun_ahead_ == t;
}

bool SiteStepCoordinator::may_stand_in(StepIndex sent) {
  bool may = false;
  all_.queue->update(
      [&] { may = !all_.admitting && !all_.lost && !all_.failure && all_.agreement.begin(sent); });
  return may;
}

void SiteStepCoordinator::wish_join(const WishNote& note) {
  all_.drive([&](NotesOut& out) { all_.agreement.wish_join(note, out); });
}

void SiteStepCoordinator::hub_back() {
  log_info("the hub is back");
  all_.drive([&](NotesOut& out) { all_.agreement.hub_back(out); });
}

bool SiteStepCoordinator::checkpoint_after(StepIndex t) {
  bool due = false;
  // Where somebody joins or leaves, so that all have a checkpoint in common and are compared.
  all_.queue->update(
      [&] { due = all_.agreement.checkpoint_after(t) || all_.agreement.change_after(t); });
  return due;
}

StopWish SiteStepCoordinator::stop_after(StepIndex t) {
  const auto end = all_.end();
  return end && end->first == t.value() ? stopped() : StopWish::kNone;
}

StopWish SiteStepCoordinator::stopped() const {
  const auto end = all_.end();
  if (!end) return StopWish::kNone;
  return end->second == Purpose::kInterrupt ? StopWish::kInterrupt : StopWish::kRequeue;
}

void SiteStepCoordinator::fail(const std::exception_ptr& failure) {
  all_.queue->update([&] {
    if (!all_.failure) all_.failure = failure;
  });
  all_.whole.abandon();
}

}  // namespace isthmus::app
