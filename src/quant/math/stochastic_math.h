// SPDX-License-Identifier: Apache-2.0
// Random rounding of one value, for host and device; `static` for the reason given in codec_math.h.
#pragma once

#include <cstddef>

#include "quant/math/codec_math.h"

namespace isthmus {

struct StochasticLevel {
  float value;
  unsigned code;
};

/// Number of a tile's values that share a block of Philox words; number of bits that count a tile's
/// kTileValues / kStochasticDraws blocks in the counter's third word, below the worker.
inline constexpr unsigned kStochasticDraws = 4;
inline constexpr unsigned kStochasticValueBits = 10;

/// A number in [0, 1) from one random word.
ISTHMUS_HOST_DEVICE static inline float uniform_of(std::uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1p-24f;
}

/// levels: `count` values, ascending. Saturates beyond their ends; a NaN gets the last one.
ISTHMUS_HOST_DEVICE static inline unsigned round_randomly(const StochasticLevel* levels,
                                                          std::size_t count, float q,
                                                          float uniform) {
  std::size_t above = 0;  // index of the first level greater than q
  for (std::size_t left = count; left > 0;) {
    const std::size_t half = left / 2;
    if (q < levels[above + half].value) {
      left = half;
    } else {
      above += half + 1;
      left -= half + 1;
    }
  }
  if (above == 0) return levels[0].code;
  const StochasticLevel low = levels[above - 1];
  if (above == count) return low.code;
  const float share = (q - low.value) / (levels[above].value - low.value);
  return uniform < share ? levels[above].code : low.code;
}

ISTHMUS_HOST_DEVICE static inline float stochastic_quotient(float x, float scale) {
  return scale > 0 ? x / scale : 0;
}
ISTHMUS_HOST_DEVICE static inline float stochastic_offset(float x, float low, float step) {
  if (!(step > 0)) return 0;
  return static_cast<float>((static_cast<double>(x) - static_cast<double>(low)) /
                            static_cast<double>(step));
}

}  // namespace isthmus
