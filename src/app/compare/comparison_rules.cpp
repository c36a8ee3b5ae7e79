// SPDX-License-Identifier: Apache-2.0
#include "app/compare/comparison_rules.h"

#include <chrono>

namespace isthmus::app {

report::ComparisonRules rules_of(const Experiment& experiment, const ComparisonPlan& plan,
                                 const Config& baseline, double entropy, bool quick) {
  const ExperimentSettings& settings = experiment.settings();
  report::ComparisonRules rules{.name = baseline.run.name,
                                .baseline = plan.baseline(),
                                .confidence = settings.confidence,
                                .margin = settings.margin,
                                .floor = entropy,
                                .target = settings.target_value,
                                .target_relative_to = plan.baseline(),
                                .target_factor = settings.target_factor,
                                .budget_steps = settings.budget_steps,
                                .budget_s = in_seconds(settings.budget_time),
                                .quick = quick};
  for (std::size_t m = 0; m < plan.variants().size(); ++m) {
    if (experiment.variants()[plan.variants()[m]].name == settings.target_relative_to) {
      rules.target_relative_to = m;
    }
  }
  return rules;
}

}  // namespace isthmus::app
