// SPDX-License-Identifier: Apache-2.0
// Selection of the k largest magnitudes of a tile: part of the kernel tables. The portable function
// is the plainest and the oracle of the others.
#pragma once

#include <cstddef>
#include <cstdint>

namespace isthmus {

/// Writes the indices, ascending, of the k largest |x|; of equal ones the lower index first. NaN
/// counts as larger than infinity. REQUIRES: 1 <= k <= n <= kTileValues.
using SelectTop = void (*)(const float* x, std::size_t n, std::size_t k, std::uint16_t* indices);

void select_top_portable(const float* x, std::size_t n, std::size_t k, std::uint16_t* indices);

}  // namespace isthmus
