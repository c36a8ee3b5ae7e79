// SPDX-License-Identifier: Apache-2.0
// uint8-minmax, one value at a time: y = low + q * step. `static` for the reason given in
// codec_math.h.
#pragma once

#include "quant/math/block_grids.h"

namespace isthmus {

/// True if low + 255 step is far from overflow, so that plain fp32 decodes the block; a wider range
/// is computed in fp64 and clamped.
ISTHMUS_HOST_DEVICE static inline bool narrow_range(float low, float step) {
  return float_of(bits_of(low) & kAbsMask) + Uint8Grid::kTop * step <= 0x1p126f;
}

ISTHMUS_HOST_DEVICE static inline float uint8_value(unsigned code, float low, float step) {
  const float q = Uint8Grid::value(code);
  if (narrow_range(low, step)) return low + q * step;
  const double wide = static_cast<double>(low) + static_cast<double>(q) * static_cast<double>(step);
  constexpr double kMost = 0x1.fffffep127;
  return static_cast<float>(wide > kMost ? kMost : wide < -kMost ? -kMost : wide);
}

/// A zero step is a constant block: code 0.
ISTHMUS_HOST_DEVICE static inline unsigned uint8_code(float x, float low, float step) {
  if (!(step > 0)) return 0;
  if (narrow_range(low, step)) {
    const float above = x - low;
    return Uint8Grid::code(plain_scale(step) ? above * (1.0f / step) : above / step);
  }
  const double q = (static_cast<double>(x) - static_cast<double>(low)) / static_cast<double>(step);
  return Uint8Grid::code(static_cast<float>(q));
}

}  // namespace isthmus
