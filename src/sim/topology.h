// SPDX-License-Identifier: Apache-2.0
// From [[link]] entries of a configuration to the directed links between members. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "isthmus/config.h"
#include "sim/link.h"

namespace isthmus {

/// The direction a -> b of an entry, or b -> a. THROWS: ConfigError for values out of range.
[[nodiscard]] DirectedLink directed_link(const LinkConfig& config, bool a_to_b);

/// Row-major [from][to] over `sites`, in their order. "*" stands for every site; the entry that
/// names more sites wins, then the later one. No entries at all: every link is free.
/// THROWS: ConfigError naming a site that no entry may mean, or a pair that none joins.
[[nodiscard]] std::vector<DirectedLink> link_matrix(const std::vector<LinkConfig>& links,
                                                    const std::vector<std::string>& sites);

}  // namespace isthmus
