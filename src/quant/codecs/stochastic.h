// SPDX-License-Identifier: Apache-2.0
// Stochastic rounding to one of the two neighbouring grid values, with the probability of the upper
// one such that the expected value is exact. The random bits of value i come from (key, i) alone,
// so every machine draws the same.
#pragma once

#include <span>
#include <vector>

#include "isthmus/codec.h"
#include "quant/math/block_grids.h"
#include "quant/math/stochastic_math.h"

namespace isthmus {

/// The grid's values, ascending, each with its code; of the two zeros only that with code 0.
[[nodiscard]] std::vector<StochasticLevel> stochastic_levels(Grid grid);

/// As GridLoops::encode, with random rounding. Saturates beyond the grid's ends. REQUIRES: no
/// threshold grid except ternary, whose scales here are true scales.
void encode_stochastically(Grid grid, std::span<const float> x, std::size_t block,
                           std::span<const float> scales, const EncodeKey& key,
                           std::span<std::byte> codes);

}  // namespace isthmus
