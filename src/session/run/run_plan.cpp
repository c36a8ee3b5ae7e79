// SPDX-License-Identifier: Apache-2.0
#include "session/run/run_plan.h"

#include "core/base/rng.h"

namespace isthmus::app {

std::vector<WorkerId> RunPlan::workers_here() const {
  std::vector<WorkerId> ranks;
  for (int m = 0; m < workers_in_process; ++m) ranks.emplace_back(first_worker + m);
  return ranks;
}

StepClock make_step_clock(const Config& config, WorkerId rank, double step_flops,
                          Duration measured) {
  const SiteConfig& site = config.sites[static_cast<std::size_t>(rank.value())];
  Duration base = measured;
  if (config.surrogate) {
    base = config.surrogate->step_time;
  } else if (config.sim.step_time > Duration{0}) {
    base = config.sim.step_time;
  } else if (site.compute_flops > 0) {
    base = Duration(static_cast<Duration::rep>(step_flops / site.compute_flops * 1e9));
  }
  return [base, jitter = site.jitter, pace = site.pace, seed = config.run.seed, rank](StepIndex t) {
    if (!takes_step(pace, t)) {
      return Duration{0};
    }
    if (jitter == 0) {
      return base;
    }
    const Rng rng(seed, Stream::kStepTime);
    const double u = 2 * rng.uniform(static_cast<std::uint64_t>(t.value()),
                                     static_cast<std::uint32_t>(rank.value())) -
                     1;
    return Duration(
        static_cast<Duration::rep>(static_cast<double>(base.count()) * (1 + jitter * u)));
  };
}

}  // namespace isthmus::app
