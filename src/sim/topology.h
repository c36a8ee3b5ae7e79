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
/// names more sites wins, then the later one. No entries at all: every link is free.
/// THROWS: ConfigError naming a site that no entry may mean, or a pair that none joins.
[[nodiscard]] std::vector<DirectedLink> link_matrix(const std::vector<LinkConfig>& links,
                                                    const std::vector<std::string>& sites);

/// Line rates over time of the directed links, (from, to), whose entries have a trace; the files
/// are read. `begun`: what the run's clock shows where the profiles' clock shows 0.
/// THROWS: ConfigError, SystemError for a file that cannot be read any more.
[[nodiscard]] std::map<std::pair<int, int>, RateProfile> link_traces(
    const std::vector<LinkConfig>& links, const std::vector<std::string>& sites, Duration begun);

/// `links` with the highest rate of each trace in the place of its mean: congestion windows are
/// sized for it, and what the line gives meanwhile is the profile's to say.
[[nodiscard]] std::vector<DirectedLink> at_highest_rates(
    std::vector<DirectedLink> links, const std::map<std::pair<int, int>, RateProfile>& traces,
    std::size_t sites);

}  // namespace isthmus
