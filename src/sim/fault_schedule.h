// SPDX-License-Identifier: Apache-2.0
// The effects of a configuration's [[fault]] entries on links and sites over time. Only times
// change: no value is lost, members wait. Pure functions.
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

/// Line rates over time of the directed links, (from, to), that faults affect: a cut link, and
/// links of a paused site, carry nothing meanwhile. `links`: row-major [from][to] over `sites`.
/// `begun`: the run's clock at the profiles' time 0; earlier faults are left out. `traces`: the
/// lines' own rates over time (link_traces), valid outside faults; all of them are in the result.
[[nodiscard]] std::map<std::pair<int, int>, RateProfile> fault_rates(
    const std::vector<FaultConfig>& faults, const std::vector<DirectedLink>& links,
    const std::vector<std::string>& sites, Duration begun,
    const std::map<std::pair<int, int>, RateProfile>& traces = {});

/// The computing speed of `site` over time.
[[nodiscard]] PaceProfile fault_pace(const std::vector<FaultConfig>& faults,
                                     const std::string& site, Duration begun);

}  // namespace isthmus
