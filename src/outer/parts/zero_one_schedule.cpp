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

void ZeroOneSchedule::go_on_from(StepIndex step) {
  *this = ZeroOneSchedule(options_);
  while (steps_ < step.value()) {
    static_cast<void>(next());
  }
}

}  // namespace isthmus::outer
