// SPDX-License-Identifier: Apache-2.0
// Rates of links as rates of members, and the shares of a reduce that follow from them. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/link.h"

namespace isthmus {

/// [a][b] = [b][a]: the worse of both ways in bit/s, infinite for a free link.
/// links: members x members, row-major [from][to].
[[nodiscard]] std::vector<double> pair_rates(std::span<const DirectedLink> links,
                                             std::size_t members);

/// By member: its best link. rates: as pair_rates gives them.
[[nodiscard]] std::vector<double> lines_by_rates(const std::vector<double>& rates,
                                                 std::size_t members);

/// Shares of the owners in a reduce by their lines (shares_by_lines,
/// transport/exchange/measured_shares.h): a member's line is its best link, the worse of both ways.
/// links: members x members, row-major [from][to]; a rate of 0 is a free link. owners: by member, 0
/// for who may own nothing; none: all may.
[[nodiscard]] std::vector<std::uint32_t> shares_by_links(
    std::span<const DirectedLink> links, int members, std::span<const std::uint32_t> owners = {});

}  // namespace isthmus
