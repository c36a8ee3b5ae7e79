// SPDX-License-Identifier: Apache-2.0
// One value under its block's scale to its code and back, for host and device: the portable loops
// call it value by value. `static` for the reason given in codec_math.h.
#pragma once

#include <cmath>

#include "quant/math/uint8_math.h"

namespace isthmus {

/// Number of floats in a block's scale: two for offset grids.
template <typename G>
inline constexpr unsigned kScaleFloats = G::kInput == GridInput::kOffset ? 2 : 1;

/// The code of one value. A NaN scale marks a block that is not finite: code 0, except for
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

/// x / scale, correctly rounded, without a division: inverse is 1 / scale, correctly rounded, and
/// each fused remainder is exact. After the first correction the error is below one unit in the
/// last place, and the second rounds correctly (Markstein, IBM J. Res. Dev. 34, 1990, theorem 7). A
/// quotient below 1/4 may be off by its last bit if its remainder is subnormal. REQUIRES:
/// plain_scale(scale), |x| <= 2^20 scale.
ISTHMUS_HOST_DEVICE static inline float plain_quotient(float x, float scale, float inverse) {
  float q = x * inverse;
  q = std::fma(std::fma(-q, scale, x), inverse, q);
  return std::fma(std::fma(-q, scale, x), inverse, q);
}

/// Nf4Grid::code by four comparisons, each of which halves the remaining borders.
ISTHMUS_HOST_DEVICE static inline unsigned nf4_code(float q) {
  constexpr unsigned kBorders = kNf4Borders.size();
  float left[kBorders];
  for (unsigned i = 0; i < kBorders; ++i) left[i] = TableOf<kNf4Borders>::entry(i);
  unsigned code = 0;
  for (unsigned half = (kBorders + 1) / 2; half > 0; half /= 2) {
    const bool above = q >= left[half - 1];
    code |= above ? half : 0u;
    for (unsigned i = 0; i + 1 < half; ++i) left[i] = above ? left[i + half] : left[i];
  }
  return code;
}

}  // namespace isthmus
