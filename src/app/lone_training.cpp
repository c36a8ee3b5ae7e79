// SPDX-License-Identifier: Apache-2.0
#include "app/lone_training.h"

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "app/run_parts.h"
#include "app/timed_inner_loop.h"
#include "core/log.h"
#include "isthmus/errors.h"
#include "kernels/cuda/device.h"
#include "kernels/thread_pinning.h"

namespace isthmus::app {
namespace {

StepIndex last_step(const Config& config, const TrainingPlan& plan, StepIndex first) {
  const std::int64_t left = std::max<std::int64_t>(0, plan.total_steps - first.value() + 1);
  const std::int64_t windows =
      std::min(config.net.max_solo_rounds, left / config.outer.H + 1);  // the product is small
  return StepIndex(first.value() - 1 + std::min(left, windows * config.outer.H));
}

void tell(const outer::OwnWork& work, const std::string& why) {
  log_info("trained on alone for {} steps, on {} tokens: {}", work.alone_steps, work.alone_tokens,
           why);
}

}  // namespace

LoneTraining::LoneTraining(Parts parts)
    : config_(parts.config),
      plan_(std::move(parts.plan)),
      self_(parts.self),
      batches_(std::move(parts.batches)),
      model_(std::move(parts.model)),
      work_(std::move(parts.work), parts.fragments, *model_),
      last_(last_step(config_, plan_, work_.next())),
      queue_(runtime_.make_wait_queue()) {}

LoneTraining::~LoneTraining() {
  queue_->update([&] { ends_ = true; });
  task_.reset();
}

void LoneTraining::begin() {
  log_info("training on alone, for {} steps at most (net.max_solo_rounds = {})",
           last_.value() + 1 - work_.next().value(), config_.net.max_solo_rounds);
  kernels::unpin_calling_thread();  // the session that looks for the others begins on it
  queue_->update([&] { over_ = false; });
  task_ = runtime_.spawn("alone", [this] {
    try {
      train();
    } catch (const std::exception& error) {
      log_warning("training on alone has ended, and what nobody has of this site is lost: {}",
                  error.what());
    }
    queue_->update([&] { over_ = true; });
  });
}

bool LoneTraining::trains() const {
  bool trains = false;
  queue_->update([&] { trains = !over_; });
  return trains;
}

bool LoneTraining::goes_on() const {
  bool ends = false;
  queue_->update([&] { ends = ends_; });
  return !ends && work_.next() <= last_;
}

// The data of the worker's session have gone with it.
void LoneTraining::train() {
  if (plan_.device.on_cuda()) cuda::use_device(plan_.device.of(self_).ordinal);
  const SystemStorage storage;
  std::optional<Dataset> data;
  try {
    data = Dataset::open(storage, config_.data, config_.file.parent_path());
  } catch (const Error& error) {
    log_warning("this site cannot train on alone: {}", error.what());
    taken_ = work_.take();
    return;
  }
  BatchSource source(*data, batch_plan(config_, plan_), self_.value());
  batches_->from = [&](StepIndex t) { return source.at(t.value() - 1); };
  const double pace = config_.sites[static_cast<std::size_t>(self_.value())].pace;
  std::string why;
  while (why.empty() && goes_on()) {
    try {
      if (takes_step(pace, work_.next())) {
        static_cast<void>(work_.step());
      } else {
        work_.skip();
      }
    } catch (const RunError& error) {  // the parameters are those before that step
      why = error.what();
    }
  }
  taken_ = work_.take();
  if (why.empty() && taken_->trained == last_) why = "waiting for the others";
  if (!why.empty()) tell(*taken_, why);  // else who ended it says why
}

std::optional<outer::OwnWork> LoneTraining::end() {
  bool over = false;
  queue_->update([&] {
    over = over_;
    ends_ = true;
  });
  if (!task_) return work_.take();
  task_->join();
  if (!over && taken_ && taken_->trained < last_) tell(*taken_, "the others are found");
  return std::move(taken_);
}

}  // namespace isthmus::app
