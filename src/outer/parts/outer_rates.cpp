// SPDX-License-Identifier: Apache-2.0
#include "outer/parts/outer_rates.h"

#include <algorithm>

namespace isthmus::outer {

double ramp_share(const OuterRamp& ramp, StepIndex sent, std::int64_t run_steps) {
  double share = 1;
  if (ramp.warmup > 0) {
    share = std::min(1.0, static_cast<double>(sent.value()) / static_cast<double>(ramp.warmup));
  }
  if (ramp.decay > 0) {
    const double left = static_cast<double>(std::max<std::int64_t>(0, run_steps - sent.value())) /
                        static_cast<double>(ramp.decay);
    share *= left >= 1 ? 1.0 : ramp.floor + (1 - ramp.floor) * left;
  }
  return share;
}

kernels::OuterStep OuterRates::at(StepIndex sent) const {
  kernels::OuterStep step = top;
  step.eta = static_cast<float>(static_cast<double>(top.eta) * ramp_share(lr, sent, run_steps));
  step.mu = static_cast<float>(static_cast<double>(top.mu) * ramp_share(momentum, sent, run_steps));
  return step;
}

}  // namespace isthmus::outer
