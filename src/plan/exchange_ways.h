// SPDX-License-Identifier: Apache-2.0
// Algorithms for one mean over given links: groups of nearby members, and the ring along which
// members are connected. For the owners' shares of a reduce see sim/link_shares.h. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/prediction.h"
#include "sim/link.h"
#include "sim/link_shares.h"
#include "transport/exchange/ring/ring_plan.h"

namespace isthmus {

/// Members form a group if the links among them are at least this many times as fast as links to
/// other members.
inline constexpr double kGroupGap = 3;

/// The group number by member, from a cut at the largest gap between link rates (the slower
/// direction of each), if that gap is above kGroupGap. Empty without such a gap, or if the cut
/// gives one group or only single members.
[[nodiscard]] std::vector<std::uint32_t> groups_by_links(std::span<const DirectedLink> links,
                                                         int members);

/// The members along the ring whose slowest link, from each member to the next, is fastest; among
/// such rings the one with the shortest time; member 0 first. Optimal for up to 9 members; for
/// more, the best greedy ring (always to the fastest next link) over all first members.
[[nodiscard]] std::vector<int> ring_by_links(std::span<const DirectedLink> links, int members);

/// Seconds of one round of `plan` that all members begin at once, until all know the commit; from
/// `input` only the links and their options are used.
[[nodiscard]] double predict_round_along(const PredictionInput& input, const RingPlan& plan);

/// A lower bound of the seconds for bytes[from][to] if all links of a member share one line, as
/// fast in each direction as its fastest link: no delays, and no line waits for another.
[[nodiscard]] double least_on_shared_lines(std::span<const DirectedLink> links,
                                           const std::vector<std::vector<std::uint64_t>>& bytes);

}  // namespace isthmus
