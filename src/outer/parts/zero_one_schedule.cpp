// SPDX-License-Identifier: Apache-2.0
#include "outer/parts/zero_one_schedule.h"

#include <algorithm>

namespace isthmus::outer {

ZeroOneStep ZeroOneSchedule::next() {
  const std::int64_t t = ++steps_;
  if (t <= options_.var_freeze_step) {
    if (t % variance_interval_ != 0) {
      return ZeroOneStep::kCompressed;
    }
    // The interval grows with the updates it spaces: it passes 2^40 after no run's end.
    if (++variance_updates_ % options_.var_update_scaler == 0) {
      variance_interval_ *= 2;
    }
    return ZeroOneStep::kVariance;
  }
  const bool sync = t % sync_interval_ == 0;
  if ((t - options_.var_freeze_step) % options_.local_step_scaler == 0) {
    sync_interval_ = std::min(options_.local_step_clipper, 2 * sync_interval_);
  }
  return sync ? ZeroOneStep::kSync : ZeroOneStep::kLocal;
}

// As next() has it, for all steps up to the next change of an interval.
ZeroOneStretch ZeroOneSchedule::next_stretch(std::int64_t most) {
  const std::int64_t begin = steps_;
  const auto multiples = [&](std::int64_t of) { return steps_ / of - begin / of; };
  ZeroOneStretch stretch;
  if (begin < options_.var_freeze_step) {
    const std::int64_t updates =
        options_.var_update_scaler - variance_updates_ % options_.var_update_scaler;
    const std::int64_t doubled = (begin / variance_interval_ + updates) * variance_interval_;
    steps_ = std::min({begin + most, options_.var_freeze_step, doubled});
    stretch.variance = multiples(variance_interval_);
    stretch.compressed = steps_ - begin - stretch.variance;
    stretch.last_sent = steps_;
    variance_updates_ += stretch.variance;
    if (steps_ == doubled) variance_interval_ *= 2;
  } else {
    const std::int64_t after = (begin - options_.var_freeze_step) / options_.local_step_scaler + 1;
    const std::int64_t doubled = options_.var_freeze_step + after * options_.local_step_scaler;
    const bool grows = sync_interval_ < options_.local_step_clipper;
    steps_ = grows ? std::min(begin + most, doubled) : begin + most;
    stretch.interval = sync_interval_;
    stretch.syncs = multiples(sync_interval_);
    if (stretch.syncs > 0) stretch.last_sent = steps_ / sync_interval_ * sync_interval_;
    if (grows && steps_ == doubled) {
      sync_interval_ = std::min(options_.local_step_clipper, 2 * sync_interval_);
    }
  }
  stretch.steps = steps_ - begin;
  return stretch;
}

void ZeroOneSchedule::go_on_from(StepIndex step) {
  *this = ZeroOneSchedule(options_);
  while (steps_ < step.value()) {
    static_cast<void>(next_stretch(step.value() - steps_));
  }
}

}  // namespace isthmus::outer
