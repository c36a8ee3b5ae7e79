// SPDX-License-Identifier: Apache-2.0
// The cost of the [[fault]]s of a simulated run: its clock compared with that of the same run
// without them.
#pragma once

#include <string>
#include <vector>

#include "isthmus/config.h"
#include "plan/prediction.h"

namespace isthmus::app {

struct FaultCost {
  std::size_t faults = 0;
  double without_s = 0;  // the run's clock without faults
  bool exact = false;    // exact to the nanosecond; else predicted by the closed form
  double cost_s = 0;
  /// Why the cost is unknown, or empty: the rest of the run cannot be separated from the faults.
  std::string unknown;
  std::vector<std::string> notes;  // remarks about single faults
};

/// `clock_s`: the run's clock at its end; `prediction`: of the run without faults; `measured_step`:
/// for a run that declares no step time. Takes milliseconds to seconds, like a Retimer. THROWS:
/// ConfigError.
[[nodiscard]] FaultCost cost_of_faults(const Config& config, const Prediction& prediction,
                                       Duration measured_step, double clock_s, bool resumed);

/// "2, which cost 4 min 48 s: 12 min 06 s without them".
[[nodiscard]] std::string describe(const FaultCost& cost);
[[nodiscard]] std::string fault_cost_json(const FaultCost& cost);

}  // namespace isthmus::app
