// SPDX-License-Identifier: Apache-2.0
// The cost of simulation on this machine, as printed by `isthmus bench sim`. Blocks for some ten
// seconds; use an idle machine.
#pragma once

#include <functional>
#include <string>

#include "isthmus/runtime.h"

namespace isthmus {

/// Passes one JSON object after another to `emit`:
///   {"bench":"sim_switches",...}    hand-overs of the baton per second, a token round a ring of
///   ranks
///   {"bench":"sim_overhead",...}    one simulated worker's compute regions against the bare loop
///   {"bench":"sim_concurrency",...} 8 workers' regions on all cores against one after another,
///   with the speed-up of plain threads as the bound
/// Figures are medians of five. `clock` is the real one; `cores` is only reported.
void time_simulation(const Clock& clock, int cores,
                     const std::function<void(const std::string& json)>& emit);

}  // namespace isthmus
