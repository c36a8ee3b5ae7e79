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
    ++pending.posted;
    hand_on();
  });
}

// Each worker posts in step order, so the lowest pending step is the first to be complete. An
// evaluation comes before the next step, which sites that are processes of their own may tell of
// first.
void RunBoard::hand_on() {
  while (!steps_.empty() && steps_.begin()->second.posted == workers_ &&
         (evals_.empty() || evals_.begin()->first >= steps_.begin()->first)) {
    auto complete = steps_.extract(steps_.begin());
    std::vector<StepPost> posts;
    for (std::optional<StepPost>& each : complete.mapped().posts) {
      posts.push_back(*std::move(each));
    }
    log_.step(StepIndex(complete.key()), posts);
    last_line_ = complete.key();
  }
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
    hand_on();
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

bool RunBoard::await_lines(StepIndex t) {
  const auto here = [&] {
    return last_line_ >= t.value() && (evals_.empty() || evals_.begin()->first > t.value());
  };
  bool all = false;
  (void)queue_->wait(
      [&] {
        all = here();
        return all || abandoned_;
      },
      kNever);
  return all;
}

void RunBoard::abandon() {
  queue_->update([&] { abandoned_ = true; });
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
