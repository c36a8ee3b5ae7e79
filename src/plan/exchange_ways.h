// SPDX-License-Identifier: Apache-2.0
// Ways in which members can make one mean over given links: who owns how much of a reduce, which
// members are near one another. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/link.h"

namespace isthmus {

/// Members whose links among each other are at least this many times as fast as those between them
/// and others are a group.
inline constexpr double kGroupGap = 3;

/// Shares of the owners in a reduce by their lines, in parts of their sum. A member with b_i bit/s
/// to the others (its best link, the worse of both ways) moves V (1 + (M - 2) f_i) bytes each way
/// of a vector of V, so the f_i of sum 1 that give the least T = max V (1 + (M - 2) f_i) / b_i are
/// max(0, (T b_i / V - 1) / (M - 2)). Even shares, or two members: nothing.
/// links: members x members, row-major [from][to]; a rate of 0 is a free link. owners: by member, 0
/// for who may own nothing; none: all may. Additions, products and quotients of doubles alone, so
/// the same on all machines.
[[nodiscard]] std::vector<std::uint32_t> shares_by_links(
    std::span<const DirectedLink> links, int members, std::span<const std::uint32_t> owners = {});

/// Members by number of their group, cut at the largest fall between rates of links (the worse of
/// both ways) where that is above kGroupGap. Nothing where there is none, or it leaves all together
/// or all apart.
[[nodiscard]] std::vector<std::uint32_t> groups_by_links(std::span<const DirectedLink> links,
                                                         int members);

}  // namespace isthmus
