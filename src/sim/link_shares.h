// SPDX-License-Identifier: Apache-2.0
// Rates of members' lines from rates of links, and the resulting shares of a reduce. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/link.h"

namespace isthmus {

/// [a][b] = [b][a]: the slower direction in bit/s, infinite for a free link. links: members x
/// members, row-major [from][to].
[[nodiscard]] std::vector<double> pair_rates(std::span<const DirectedLink> links,
                                             std::size_t members);

/// By member: the rate of its best link. rates: as from pair_rates.
[[nodiscard]] std::vector<double> lines_by_rates(const std::vector<double>& rates,
                                                 std::size_t members);

/// Shares as integers, in proportion. A member with b_i bit/s to all others, each way, moves V (1 +
/// (M - 2) f_i) bytes each way of a vector of V bytes. The f_i of sum 1 with the least T = max V (1
/// + (M - 2) f_i) / b_i are max(0, (T b_i / V - 1) / (M - 2)). Empty for even shares or two
/// members. lines: b by member, in any unit, above 0 and finite. owners: by member, 0 for a member
/// that may own nothing; empty: all may. Only sums, products and quotients of doubles, so the
/// result is the same on all machines.
[[nodiscard]] std::vector<std::uint32_t> shares_by_lines(std::span<const double> lines,
                                                         std::span<const std::uint32_t> owners);

/// Shares of the owners in a reduce by their lines (shares_by_lines): a member's line is its best
/// link, in the slower direction. links: members x members, row-major [from][to]; a rate of 0 is a
/// free link. owners: by member, 0 for a member that may own nothing; empty: all may.
[[nodiscard]] std::vector<std::uint32_t> shares_by_links(
    std::span<const DirectedLink> links, int members, std::span<const std::uint32_t> owners = {});

}  // namespace isthmus
