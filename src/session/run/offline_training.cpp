// SPDX-License-Identifier: Apache-2.0
#include "session/run/offline_training.h"

#include <algorithm>
#include <exception>
#include <new>
#include <string>
#include <utility>

#include "core/base/log.h"
#include "isthmus/errors.h"
#include "kernels/thread_pinning.h"
#include "session/run/timed_inner_loop.h"

namespace isthmus::app {
namespace {

StepIndex last_step(const Config& config, const RunPlan& plan, StepIndex first) {
  const std::int64_t left = std::max<std::int64_t>(0, plan.total_steps - first.value() + 1);
  const std::int64_t windows =
      std::min(config.net.max_solo_rounds, left / config.outer.H + 1);  // the product is small
  return StepIndex(first.value() - 1 + std::min(left, windows * config.outer.H));
}

void tell(const outer::UncommittedDelta& work, const std::string& why) {
  log_info("trained on alone for {} steps, on {} tokens: {}", work.alone_steps, work.alone_tokens,
           why);
}

void tell_lost(const outer::UncommittedDelta& work) {
  if (work.alone_steps == 0) return;
  log_warning(
      "this site ends before it is back with the others: its uncommitted work is lost, {} tokens; "
      "{} of the steps were taken alone, on {} tokens",
      work.all_tokens(), work.alone_steps, work.alone_tokens);
}

}  // namespace

OfflineTraining::OfflineTraining(Parts parts)
    : config_(parts.config),
      plan_(std::move(parts.plan)),
      self_(parts.self),
      trainer_(std::move(parts.trainer)),
      work_(std::move(parts.work), parts.fragments, trainer_->loop()),
      last_(last_step(config_, plan_, work_.next())),
      runtime_(parts.runtime ? std::move(parts.runtime) : std::make_unique<SystemRuntime>()),
      queue_(runtime_->make_wait_queue()) {}

OfflineTraining::~OfflineTraining() {
  queue_->update([&] { ends_ = true; });
  task_.reset();
  if (taken_) tell_lost(*taken_);
}

void OfflineTraining::begin() {
  log_info("training on alone, for {} steps at most (net.max_solo_rounds = {})",
           last_.value() + 1 - work_.next().value(), config_.net.max_solo_rounds);
  kernels::unpin_calling_thread();  // the session that looks for the others begins on it
  queue_->update([&] { over_ = false; });
  try {
    task_ = runtime_->spawn("alone", [this] {
      try {
        train();
      } catch (const std::exception&) {  // for want of memory for words, say
      }
      queue_->update([&] { over_ = true; });
    });
  } catch (const std::exception& error) {  // no thread
    queue_->update([&] { over_ = true; });
    log_warning("this site cannot train on alone: {}", error.what());
  }
}

bool OfflineTraining::trains() const {
  bool trains = false;
  queue_->update([&] { trains = !over_; });
  return trains;
}

bool OfflineTraining::goes_on() const {
  bool ends = false;
  queue_->update([&] { ends = ends_; });
  return !ends && work_.next() <= last_;
}

void OfflineTraining::take_steps() {
  trainer_->train_alone();
  const double pace = config_.sites[static_cast<std::size_t>(self_.value())].pace;
  while (goes_on()) {
    if (takes_step(pace, work_.next())) {
      static_cast<void>(work_.step());
    } else {
      work_.skip();
    }
  }
}

// A step that fails for want of data or memory, or because it diverges, has left the parameters
// unchanged: the training before it can still be contributed.
void OfflineTraining::train() {
  std::string why;
  try {
    take_steps();
  } catch (const std::bad_alloc&) {
    why = "there is too little memory";
  } catch (const std::exception& error) {
    why = error.what();
  }
  try {
    taken_ = work_.take();
  } catch (const std::exception& error) {
    taken_ = work_.lose();
    log_warning("training on alone has ended, and the uncommitted work of this site is lost: {}",
                why.empty() ? error.what() : why);
    return;
  }
  if (!why.empty() && taken_->alone_steps == 0) {
    log_warning("this site cannot train on alone: {}", why);
  } else if (!why.empty()) {
    tell(*taken_, why);
  } else if (taken_->trained == last_) {
    tell(*taken_, "waiting for the others");
  }  // otherwise the task that ended it gives the reason
}

outer::UncommittedDelta OfflineTraining::end() {
  bool over = false;
  queue_->update([&] {
    over = over_;
    ends_ = true;
  });
  if (!task_) return work_.take();
  task_->join();
  if (!taken_) return work_.lose();
  outer::UncommittedDelta work = *std::exchange(taken_, std::nullopt);
  if (!over && work.trained < last_) tell(work, "the others are found");
  return work;
}

PendingDelta::~PendingDelta() {
  training.reset();
  if (work) tell_lost(*work);
}

}  // namespace isthmus::app
