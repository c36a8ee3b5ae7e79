// SPDX-License-Identifier: Apache-2.0
// From [[fault]] entries of a configuration to what they make of links and sites over time. Times
// change, values never do: nothing is lost, everybody waits. Pure functions.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "isthmus/config.h"
#include "sim/link.h"
#include "sim/pace_profile.h"
#include "sim/rate_profile.h"

namespace isthmus {

/// Line rates over time of the directed links, (from, to), that faults touch: a cut link and those
/// of a paused site carry nothing meanwhile. `links`: row-major [from][to] over `sites`.
/// `begun`: what the run's clock shows where the profiles' clock shows 0; faults that are over by
/// then are left out. `traces`: the lines' own rates over time (link_traces), which hold where no
/// fault does; all of them are in the result.
[[nodiscard]] std::map<std::pair<int, int>, RateProfile> fault_rates(
    const std::vector<FaultConfig>& faults, const std::vector<DirectedLink>& links,
    const std::vector<std::string>& sites, Duration begun,
    const std::map<std::pair<int, int>, RateProfile>& traces = {});

/// How fast `site` computes over time.
[[nodiscard]] PaceProfile fault_pace(const std::vector<FaultConfig>& faults,
                                     const std::string& site, Duration begun);

}  // namespace isthmus
