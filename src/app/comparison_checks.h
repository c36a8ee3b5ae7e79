// SPDX-License-Identifier: Apache-2.0
// What makes a comparison weak although it runs: too few rounds, windows cut short, epochs that
// flatter averaging, methods outside of their field. Notes for people; pure but for the data.
#pragma once

#include <string>
#include <vector>

#include "app/cell_inputs.h"
#include "app/comparison_plan.h"

namespace isthmus::app {

/// One sentence each. THROWS: as CellInputs.
[[nodiscard]] std::vector<std::string> weaknesses_of(const Experiment& experiment,
                                                     const ComparisonPlan& plan,
                                                     CellInputs& inputs);

}  // namespace isthmus::app
