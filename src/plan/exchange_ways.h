// SPDX-License-Identifier: Apache-2.0
// Ways in which members can make one mean over given links: which members are near one another,
// along which ring or tree they are joined. Who owns how much of a reduce: sim/link_shares.h. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/prediction.h"
#include "sim/link.h"
#include "sim/link_shares.h"
#include "transport/exchange/tree/tree_plan.h"

namespace isthmus {

/// Members whose links among each other are at least this many times as fast as those between them
/// and others are a group.
inline constexpr double kGroupGap = 3;

/// Members by number of their group, cut at the largest fall between rates of links (the worse of
/// both ways) where that is above kGroupGap. Nothing where there is none, or it leaves all together
/// or all apart.
[[nodiscard]] std::vector<std::uint32_t> groups_by_links(std::span<const DirectedLink> links,
                                                         int members);

/// Members along the ring whose slowest link, from each to the next, is fastest; of those the one
/// that is shortest in time; member 0 first. The best there is of up to 9 members; of more, the
/// best that going on to the fastest link gives from some member.
[[nodiscard]] std::vector<int> ring_by_links(std::span<const DirectedLink> links, int members);

/// Members by their best link (the worse of both ways), the fastest first: near the root of a tree
/// there is most to send.
[[nodiscard]] std::vector<int> tree_by_links(std::span<const DirectedLink> links, int members);

/// Seconds of one round of `plan` that all begin at once, until all know it committed; of `input`
/// links and their behaviour alone count.
[[nodiscard]] double predict_round_along(const PredictionInput& input, const TreePlan& plan);

/// The least seconds for bytes[from][to] where all links of a member share one line of its own, as
/// fast each way as its fastest link. A bound: no delays, and no line waits for another.
[[nodiscard]] double least_on_shared_lines(std::span<const DirectedLink> links,
                                           const std::vector<std::vector<std::uint64_t>>& bytes);

}  // namespace isthmus
