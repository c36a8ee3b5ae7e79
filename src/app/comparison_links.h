// SPDX-License-Identifier: Apache-2.0
// What a comparison's runs would have taken to the target over other links. The steps are those
// that were found: methods whose path depends on the link (late rounds dropped, unequal windows)
// are not among ours. The time is the closed form's (plan/prediction.h).
#pragma once

#include "app/cell_inputs.h"
#include "app/comparison_plan.h"
#include "report/comparison.h"

namespace isthmus::app {

/// For each of compare.links and each variant of `comparison`, whose clocks are simulated.
[[nodiscard]] report::OtherLinks times_on_links(const Experiment& experiment,
                                                const ComparisonPlan& plan,
                                                const report::Comparison& comparison,
                                                CellInputs& inputs);

}  // namespace isthmus::app
