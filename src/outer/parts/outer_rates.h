// SPDX-License-Identifier: Apache-2.0
// The outer optimizer's rates over a run: learning rate and momentum, each with a warm-up and a
// decay. A round's rates follow from the step at which it was sent, so every worker, a joiner that
// replays results and a run that goes on from a checkpoint find the same ones, and nothing is
// saved.
#pragma once

#include "isthmus/outer.h"
#include "kernels/outer_step.h"

namespace isthmus::outer {

/// What `ramp` makes of a rate at step `sent` of a run of `run_steps` steps, as a share of it:
/// min(1, sent / warmup) times a line from 1 to `floor` over the last `decay` steps.
/// sent >= 1; beyond the run's end: `floor`, where there is a decay.
[[nodiscard]] double ramp_share(const OuterRamp& ramp, StepIndex sent, std::int64_t run_steps);

struct OuterRates {
  kernels::OuterStep top;  // the rule, and the rates at the top of both ramps
  OuterRamp lr;
  OuterRamp momentum;
  std::int64_t run_steps = 0;

  /// Whether rounds differ at all.
  [[nodiscard]] bool vary() const { return lr.moves() || momentum.moves(); }
  /// Of the round that was sent at `sent`. The rule is `top`'s, at momentum 0 too.
  [[nodiscard]] kernels::OuterStep at(StepIndex sent) const;
};

}  // namespace isthmus::outer
