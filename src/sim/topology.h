// SPDX-License-Identifier: Apache-2.0
// From [[link]] entries of a configuration to the directed links between members. Pure functions.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "isthmus/config.h"
#include "sim/link.h"
#include "sim/rate_profile.h"

namespace isthmus {

/// The direction a -> b of an entry, or b -> a. THROWS: ConfigError for values out of range.
[[nodiscard]] DirectedLink directed_link(const LinkConfig& config, bool a_to_b);

/// Row-major [from][to] over `sites`, in their order. "*" stands for every site; the entry that
/// names more sites wins, then the later one. Without entries every link is free. THROWS:
/// ConfigError naming an unknown site, or a pair without a link.
[[nodiscard]] std::vector<DirectedLink> link_matrix(const std::vector<LinkConfig>& links,
                                                    const std::vector<std::string>& sites);

/// Line rates over time of the directed links, (from, to), whose entries have a trace; reads the
/// files. `begun`: the run's clock at the profiles' time 0. THROWS: ConfigError, SystemError for an
/// unreadable file.
[[nodiscard]] std::map<std::pair<int, int>, RateProfile> link_traces(
    const std::vector<LinkConfig>& links, const std::vector<std::string>& sites, Duration begun);

/// `links` with the highest rate of each trace in place of its mean: congestion windows are sized
/// for it, and the profile gives the line's rate over time.
[[nodiscard]] std::vector<DirectedLink> at_highest_rates(
    std::vector<DirectedLink> links, const std::map<std::pair<int, int>, RateProfile>& traces,
    std::size_t sites);

}  // namespace isthmus
