// SPDX-License-Identifier: Apache-2.0
// The numbers of a configuration for any trainer: steps, workers, when to evaluate. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "isthmus/config.h"
#include "isthmus/types.h"
#include "session/run/timed_inner_loop.h"

namespace isthmus::app {

struct RunPlan {
  std::int64_t total_steps = 0;
  int workers = 1;
  int first_worker = 0;               // first worker in this process
  int workers_in_process = 1;         // from first_worker on
  std::int64_t eval_every = 0;        // 0: at the last step only
  std::int64_t checkpoint_every = 0;  // steps; 0: by time and at the end only

  /// The workers in this process.
  [[nodiscard]] std::vector<WorkerId> workers_here() const;
  /// Whether an evaluation is due after this step.
  [[nodiscard]] bool evaluates_after(StepIndex t) const {
    return t.value() == total_steps || (eval_every > 0 && t.value() % eval_every == 0);
  }
};

/// `only`: the one worker of this process; else all workers run here. THROWS: ConfigError for a
/// net.chunk smaller than a tile of one of the run's codecs.
[[nodiscard]] RunPlan make_run_plan(const Config& config, std::optional<WorkerId> only);

/// Virtual duration of worker `rank`'s steps: the surrogate's step time, or `step_flops` at the
/// site's declared speed, or `measured`; times 1 + jitter * u with u uniform in [-1, 1], a function
/// of (seed, step, rank) alone.
[[nodiscard]] StepClock make_step_clock(const Config& config, WorkerId rank, double step_flops,
                                        Duration measured);

}  // namespace isthmus::app
