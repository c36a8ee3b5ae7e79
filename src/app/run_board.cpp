// SPDX-License-Identifier: Apache-2.0
#include "app/run_board.h"

#include <algorithm>
#include <utility>

#include "core/check.h"

namespace isthmus::app {

RunBoard::RunBoard(int workers, std::int64_t total_steps, RunLog& log)
    : workers_(workers), total_steps_(total_steps), log_(log) {}

void RunBoard::attach(Runtime& runtime) {
  std::call_once(attached_, [&] { queue_ = runtime.make_wait_queue(); });
}

void RunBoard::post_step(Rank rank, StepIndex t, StepPost post) {
  queue_->update([&] {
    PendingStep& pending = steps_[t.value()];
    pending.posts.resize(static_cast<std::size_t>(workers_));
    auto& place = pending.posts[static_cast<std::size_t>(rank.value())];
    ISTHMUS_CHECK(!place.has_value(), rank.value(), t.value());
    place = std::move(post);
    if (++pending.posted < workers_) {
      return;
    }
    // Each worker posts in step order, so the first step that is complete is the lowest pending
    // one.
    std::vector<StepPost> posts;
    for (std::optional<StepPost>& each : pending.posts) {
      posts.push_back(*std::move(each));
    }
    steps_.erase(t.value());
    log_.step(t, posts);
  });
}

void RunBoard::post_eval(Rank, StepIndex t, const std::vector<EvalPart>& parts, TimePoint now) {
  queue_->update([&] {
    PendingEval& pending = evals_[t.value()];
    for (const EvalPart& part : parts) {
      pending.parts[part.batch] = part;
    }
    pending.now = std::max(pending.now, now);
    if (++pending.posted < workers_) {
      return;
    }
    EvalResult result{.step = t, .now = pending.now};
    for (const auto& [batch, part] : pending.parts) {
      result.loss += part.loss_sum;
      result.tokens += part.tokens;
    }
    if (result.tokens > 0) {
      result.loss /= static_cast<double>(result.tokens);
    }
    evals_.erase(t.value());
    log_.eval(result);
  });
}

void RunBoard::begin_step(Rank rank, StepIndex t, bool checkpoint_due) {
  queue_->update([&] {
    // The step after the furthest one begun is the first that every worker is still to begin, so
    // all of them see the agreement before they finish it.
    const std::int64_t next = furthest_begun_ + 1;
    furthest_begun_ = std::max(furthest_begun_, t.value());
    if (const StopWish wish = SignalScope::wish(); wish != StopWish::kNone && !stop_step_) {
      const std::int64_t step = std::max(next, t.value());
      // With the last step begun somewhere the run ends by itself, complete.
      if (step < total_steps_) {
        stop_wish_ = wish;
        stop_step_ = step;
      }
    }
    if (rank == Rank(0) && checkpoint_due) {
      checkpoint_steps_.insert(std::min(std::max(next, t.value()), total_steps_));
    }
  });
}

bool RunBoard::checkpoint_after(StepIndex t) {
  bool due = false;
  queue_->update([&] { due = checkpoint_steps_.contains(t.value()); });
  return due;
}

StopWish RunBoard::stop_after(StepIndex t) {
  StopWish wish = StopWish::kNone;
  queue_->update([&] {
    if (stop_step_ == t.value()) {
      wish = stop_wish_;
    }
  });
  return wish;
}

}  // namespace isthmus::app
