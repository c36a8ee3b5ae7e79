// SPDX-License-Identifier: Apache-2.0
#include "session/run/local_step_coordinator.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/base/log.h"

namespace isthmus::app {

LocalStepCoordinator::LocalStepCoordinator(int workers, std::int64_t total_steps, RunLog& log,
                                           Wishes& wishes)
    : workers_(workers),
      total_steps_(total_steps),
      log_(log),
      wishes_(wishes),
      after_(static_cast<std::size_t>(workers), 0),
      until_(static_cast<std::size_t>(workers), kStays) {}

void LocalStepCoordinator::attach(Runtime& runtime) {
  std::call_once(attached_, [&] { queue_ = runtime.make_wait_queue(); });
}

void LocalStepCoordinator::post_step(WorkerId rank, StepIndex t, StepPost post) {
  queue_->update([&] {
    if (!expected(rank.value(), t.value())) {
      return;
    }
    post.rank = rank;
    const bool fresh = steps_[t.value()].emplace(rank.value(), std::move(post)).second;
    ISTHMUS_CHECK(fresh, rank.value(), t.value());
    hand_on();
  });
}

void LocalStepCoordinator::post_eval(WorkerId rank, StepIndex t, const EvalShare& share) {
  queue_->update([&] {
    if (!expected(rank.value(), t.value())) {
      return;
    }
    PendingEval& pending = evals_[t.value()];
    for (const EvalPart& part : share.parts) {
      pending.parts[part.batch] = part;
    }
    pending.posted.insert(rank.value());
    pending.batches = std::max(pending.batches, share.batches);
    pending.now = std::max(pending.now, share.now);
    hand_on();
  });
}

bool LocalStepCoordinator::expected(int rank, std::int64_t t) const {
  const auto place = static_cast<std::size_t>(rank);
  return after_[place] < t && t <= until_[place];
}

template <typename Posted>
bool LocalStepCoordinator::all_posted(std::int64_t t, const Posted& posted) const {
  for (int rank = 0; rank < workers_; ++rank) {
    if (expected(rank, t) && !posted.contains(rank)) {
      return false;
    }
  }
  return true;
}

// Each worker posts in step order, so the lowest pending step is the first to be complete. An
// evaluation comes before the next step, which sites that are processes of their own may tell of
// first.
void LocalStepCoordinator::hand_on() {
  while (true) {
    if (eval_is_due()) {
      hand_on_eval();
    } else if (!steps_.empty() &&
               (evals_.empty() || evals_.begin()->first >= steps_.begin()->first) &&
               all_posted(steps_.begin()->first, steps_.begin()->second)) {
      hand_on_step();
    } else {
      return;
    }
  }
}

void LocalStepCoordinator::hand_on_step() {
  auto complete = steps_.extract(steps_.begin());
  while (!changes_.empty() && changes_.begin()->first < complete.key()) {
    tell(std::move(changes_.extract(changes_.begin()).mapped()));
  }
  std::vector<StepPost> posts;
  for (auto& [rank, post] : complete.mapped()) {
    posts.push_back(std::move(post));
  }
  log_.step(StepIndex(complete.key()), posts);
  last_line_ = complete.key();
}

/// True for the first pending evaluation once all workers have posted and the steps before it have
/// been handed on. At the last step a worker may add the parts that are missing.
bool LocalStepCoordinator::eval_is_due() const {
  if (evals_.empty()) {
    return false;
  }
  const auto& [t, eval] = *evals_.begin();
  return (steps_.empty() || steps_.begin()->first > t) && all_posted(t, eval.posted) &&
         (t < total_steps_ || missing(eval).empty());
}

void LocalStepCoordinator::hand_on_eval() {
  const auto complete = evals_.extract(evals_.begin());
  const PendingEval& eval = complete.mapped();
  const StepIndex t(complete.key());
  if (const std::size_t gaps = missing(eval).size(); gaps > 0) {
    tell({.kind = RunEvent::Kind::kEvalIncomplete,
          .step = t,
          .of = eval.batches,
          .missing = static_cast<std::int64_t>(gaps),
          .why = "a site that had a share of it went away, or one came, meanwhile"});
    return;
  }
  EvalResult result{.step = t, .now = eval.now};
  for (const auto& [batch, part] : eval.parts) {
    result.loss += part.loss_sum;
    result.tokens += part.tokens;
    result.parts.push_back(part);
  }
  if (result.tokens > 0) {
    result.loss /= static_cast<double>(result.tokens);
  }
  log_.eval(result);
}

std::vector<std::int64_t> LocalStepCoordinator::missing(const PendingEval& eval) {
  std::vector<std::int64_t> batches;
  for (std::int64_t batch = 0; batch < eval.batches; ++batch) {
    if (!eval.parts.contains(batch)) batches.push_back(batch);
  }
  return batches;
}

void LocalStepCoordinator::complete_eval(StepIndex t, const std::vector<EvalPart>& missing) {
  queue_->update([&] {
    PendingEval& pending = evals_.at(t.value());
    for (const EvalPart& part : missing) {
      pending.parts[part.batch] = part;
    }
    hand_on();
  });
}

std::vector<bool> LocalStepCoordinator::present(StepIndex t) {
  std::vector<bool> there;
  queue_->update([&] {
    for (int rank = 0; rank < workers_; ++rank) there.push_back(expected(rank, t.value()));
  });
  return there;
}

void LocalStepCoordinator::tell(RunEvent event) {
  for (int rank = 0; rank < workers_; ++rank) {
    event.present += expected(rank, event.step.value() + 1) ? 1 : 0;
  }
  log_.event(event);
}

void LocalStepCoordinator::came_back(WorkerId rank, StepIndex t, const RejoinReport& work) {
  queue_->update(
      [&] { tell({.kind = RunEvent::Kind::kCameBack, .step = t, .who = rank, .work = work}); });
}

void LocalStepCoordinator::healed(WorkerId rank, StepIndex t, const std::string& why) {
  queue_->update(
      [&] { tell({.kind = RunEvent::Kind::kHealed, .step = t, .who = rank, .why = why}); });
}

void LocalStepCoordinator::leave(WorkerId rank, const std::string& why) {
  queue_->update([&] {
    // A worker that leaves before its joining has a line gets neither line.
    const auto place = static_cast<std::size_t>(rank.value());
    const auto change_of = [&](RunEvent::Kind kind) {
      return std::ranges::find_if(changes_, [&](const auto& change) {
        return change.second.who == rank && change.second.kind == kind;
      });
    };
    const auto coming = change_of(RunEvent::Kind::kJoined);
    const bool came = coming == changes_.end();
    if (!came) changes_.erase(coming);
    const bool left = until_[place] != kStays && until_[place] < last_line_;  // told already
    if (const auto going = change_of(RunEvent::Kind::kLeft); going != changes_.end()) {
      changes_.erase(going);
    }
    after_[place] = kGone;
    until_[place] = kStays;
    if (came && !left) {
      tell({.kind = RunEvent::Kind::kLeft, .step = StepIndex(last_line_), .who = rank, .why = why});
    }
    hand_on();
  });
}

void LocalStepCoordinator::leave_after(WorkerId rank, StepIndex after, const std::string& why) {
  queue_->update([&] {
    until_[static_cast<std::size_t>(rank.value())] = after.value();
    changes_.emplace(
        after.value(),
        RunEvent{.kind = RunEvent::Kind::kLeft, .step = after, .who = rank, .why = why});
    hand_on();
  });
}

void LocalStepCoordinator::end_after(StepIndex after) {
  queue_->update([&] {
    std::ranges::fill(until_, after.value());
    steps_.erase(steps_.upper_bound(after.value()), steps_.end());
    evals_.erase(evals_.upper_bound(after.value()), evals_.end());
    hand_on();
  });
}

void LocalStepCoordinator::join(WorkerId rank, StepIndex after) {
  queue_->update([&] {
    after_[static_cast<std::size_t>(rank.value())] = after.value();
    until_[static_cast<std::size_t>(rank.value())] = kStays;
    changes_.emplace(after.value(),
                     RunEvent{.kind = RunEvent::Kind::kJoined, .step = after, .who = rank});
    // Steps that a former process of it was ahead by are taken again.
    for (auto step = steps_.upper_bound(after.value()); step != steps_.end(); ++step) {
      step->second.erase(rank.value());
    }
    for (auto eval = evals_.upper_bound(after.value()); eval != evals_.end(); ++eval) {
      eval->second.posted.erase(rank.value());
    }
  });
}

void LocalStepCoordinator::stand_by() {
  queue_->update([&] { std::ranges::fill(after_, kGone); });
}

void LocalStepCoordinator::start(WorkerId self, const std::vector<bool>& present, StepIndex after) {
  queue_->update([&] {
    for (std::size_t rank = 0; rank < after_.size(); ++rank) {
      after_[rank] = present[rank] ? after.value() : kGone;
    }
    last_line_ = after.value();
    tell({.kind = RunEvent::Kind::kJoined, .step = after, .who = self});
  });
}

bool LocalStepCoordinator::begin_ahead(StepIndex t) {
  bool may = false;
  queue_->update([&] {
    may = t.value() <= stop_step_.value_or(total_steps_);
    if (may) furthest_begun_ = std::max(furthest_begun_, t.value());
  });
  return may;
}

bool LocalStepCoordinator::begin_step(WorkerId rank, StepIndex t, bool checkpoint_due) {
  queue_->update([&] {
    // The step after the furthest one begun is the first that every worker is still to begin, so
    // all of them see the agreement before they finish it.
    if (wishes_.take_leave()) {
      log_warning(
          "asked to leave (SIGUSR2), but only a site that runs as a separate process can leave: "
          "training continues");
    }
    const std::int64_t next = furthest_begun_ + 1;
    furthest_begun_ = std::max(furthest_begun_, t.value());
    if (const StopWish wish = wishes_.stop(); wish != StopWish::kNone && !stop_step_) {
      const std::int64_t step = std::max(next, t.value());
      // With the last step begun somewhere the run ends by itself, complete.
      if (step < total_steps_) {
        stop_wish_ = wish;
        stop_step_ = step;
      }
    }
    if (wishes_.take_checkpoint() || (rank == WorkerId(0) && checkpoint_due)) {
      checkpoint_steps_.insert(std::min(std::max(next, t.value()), total_steps_));
    }
  });
  return true;
}

bool LocalStepCoordinator::checkpoint_after(StepIndex t) {
  bool due = false;
  queue_->update([&] { due = checkpoint_steps_.contains(t.value()); });
  return due;
}

std::optional<std::vector<std::int64_t>> LocalStepCoordinator::await_missing(StepIndex t) {
  std::optional<std::vector<std::int64_t>> lacks;
  (void)queue_->wait(
      [&] {
        const auto found = evals_.find(t.value());
        if (found == evals_.end()) {
          lacks.emplace();
        } else if (all_posted(t.value(), found->second.posted)) {
          lacks = missing(found->second);
        }
        return lacks || abandoned_;
      },
      kNever);
  return lacks;
}

bool LocalStepCoordinator::await_lines(StepIndex t) {
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

void LocalStepCoordinator::abandon() {
  queue_->update([&] { abandoned_ = true; });
}

StopWish LocalStepCoordinator::stop_after(StepIndex t) {
  StopWish wish = StopWish::kNone;
  queue_->update([&] {
    if (stop_step_ == t.value()) {
      wish = stop_wish_;
    }
  });
  return wish;
}

}  // namespace isthmus::app
