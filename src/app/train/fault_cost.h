// SPDX-License-Identifier: Apache-2.0
// What the [[fault]]s of a simulated run cost: its clock beside that of the same run without them.
#pragma once

#include <string>
#include <vector>

#include "isthmus/config.h"
#include "plan/prediction.h"

namespace isthmus::app {

struct FaultCost {
  std::size_t faults = 0;
  double without_s = 0;  // the run's clock without them
  bool exact = false;    // to the nanosecond; else as the closed form predicts it
  double cost_s = 0;
  /// Why the two are not known, or empty: the rest of the run cannot be told from the faults.
  std::string unknown;
  std::vector<std::string> notes;  // what else a reader should know of single faults
};

/// `clock_s`: what the run's clock showed at its end; `prediction`: of the run without faults;
/// `measured_step`: of a run that declares no step time. Takes milliseconds to seconds, as a
/// Retimer does. THROWS: ConfigError.
[[nodiscard]] FaultCost cost_of_faults(const Config& config, const Prediction& prediction,
                                       Duration measured_step, double clock_s, bool resumed);

/// "2, which cost 4 min 48 s: 12 min 06 s without them".
[[nodiscard]] std::string describe(const FaultCost& cost);
[[nodiscard]] std::string fault_cost_json(const FaultCost& cost);

}  // namespace isthmus::app
