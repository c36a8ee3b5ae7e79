// SPDX-License-Identifier: Apache-2.0
// One value under its block's scale to its code and back, for host and device: what the portable
// loops do value by value. `static` for the reason in codec_math.h.
#pragma once

#include "quant/math/uint8_math.h"

namespace isthmus {

/// Floats that a block's scale takes: offset grids have pairs.
template <typename G>
inline constexpr unsigned kScaleFloats = G::kInput == GridInput::kOffset ? 2 : 1;

/// The code of one value. A scale that is NaN marks a block that is not finite: code 0, but for
/// threshold grids.
template <typename G>
ISTHMUS_HOST_DEVICE static inline unsigned code_of(float x, const float* scale) {
  if constexpr (G::kInput == GridInput::kThreshold) {
    return G::code(x, *scale);
  } else if constexpr (G::kInput == GridInput::kOffset) {
    return uint8_code(x, scale[0], scale[1]);
  } else {
    const float s = *scale;
    if (!(s >= 0)) return 0;
    if (!(s > 0)) return G::code(x * 0.0f);  // zero codes, signs kept
    if constexpr (G::kInput == GridInput::kReciprocal) {
      if (plain_scale(s)) return G::code(x * (1.0f / s));
    }
    return G::code(x / s);
  }
}

template <typename G>
ISTHMUS_HOST_DEVICE static inline float value_of(unsigned code, const float* scale) {
  if constexpr (G::kInput == GridInput::kOffset) {
    return uint8_value(code, scale[0], scale[1]);
  } else {
    return G::value(code) * *scale;
  }
}

}  // namespace isthmus
