// SPDX-License-Identifier: Apache-2.0
#include "app/comparison_links.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "app/run_parts.h"
#include "app/run_worlds.h"
#include "kernels/thread_team.h"

namespace isthmus::app {
namespace {

/// Seconds of the first `steps` steps of a run of `config` over `link` between all its sites.
double seconds_over(Config config, const std::string& link, std::int64_t steps,
                    CellInputs& inputs) {
  replace_links(config, {parse_link(link)}, "compare.links");
  TrainingPlan plan = make_training_plan(config, kernels::usable_cores());
  if (steps < plan.total_steps) {
    plan.total_steps = steps;
    if (config.outer.final_sync == FinalSync::kFull) {
      config.outer.final_sync = FinalSync::kDrain;  // the target was met on the way
    }
  }
  const ModelLayout layout(model_shape(config.model, config.train.context));
  const RunWorld world{.config = config,
                       .plan = plan,
                       .layout = layout,
                       .data = inputs.data(config).data,
                       .simulated = true,
                       .byte_scale = surrogate_byte_scale(config, layout)};
  return predict_run(world, Duration{0}).predicted_s;
}

}  // namespace

report::OtherLinks times_on_links(const Experiment& experiment, const ComparisonPlan& plan,
                                  const report::Comparison& comparison, CellInputs& inputs) {
  report::OtherLinks other{.links = experiment.settings().links};
  for (std::size_t m = 0; m < plan.variants().size(); ++m) {
    std::vector<Setting> tuned;
    for (const auto& [key, value] : comparison.variants[m].tuned) {
      tuned.push_back({.key = key, .value = value, .origin = "tuned"});
    }
    const Config config = experiment.config(plan.variants()[m], tuned);
    const double steps = comparison.results[m].to_target.steps;
    std::vector<double>& seconds = other.seconds.emplace_back();
    for (const std::string& link : other.links) {
      const bool reached = comparison.target && std::isfinite(steps) && steps >= 1;
      seconds.push_back(reached ? seconds_over(config, link, std::llround(steps), inputs)
                                : std::numeric_limits<double>::infinity());
    }
  }
  return other;
}

}  // namespace isthmus::app
