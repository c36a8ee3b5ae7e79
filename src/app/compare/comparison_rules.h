// SPDX-License-Identifier: Apache-2.0
// The parameters of a comparison's statistics: baseline, margin, confidence, target, budgets.
#pragma once

#include "app/compare/comparison_plan.h"
#include "report/data/comparison.h"

namespace isthmus::app {

/// `baseline`: the run file of the baseline's first seed. `entropy`: nats a token, if the data's
/// entropy is known; else 0.
[[nodiscard]] report::ComparisonRules rules_of(const Experiment& experiment,
                                               const ComparisonPlan& plan, const Config& baseline,
                                               double entropy, bool quick);

}  // namespace isthmus::app
