// SPDX-License-Identifier: Apache-2.0
// Rules that making a mesh and planning one share. Pure functions.
#pragma once

#include <algorithm>
#include <cstdint>

#include "inner/model_shape.h"

namespace isthmus {

/// The divisor of n next to `wanted`, the smaller one of two.
[[nodiscard]] inline std::int64_t nearest_divisor(std::int64_t n, std::int64_t wanted) {
  for (std::int64_t away = 0; away < std::max(n, wanted); ++away) {
    if (wanted - away >= 1 && n % (wanted - away) == 0) return wanted - away;
    if (wanted + away <= n && n % (wanted + away) == 0) return wanted + away;
  }
  return 1;
}

/// Layers of 12 d^2 weights that the output head weighs as much as.
[[nodiscard]] inline double head_layers(const ModelShape& shape) {
  return static_cast<double>(shape.vocab) / (12 * static_cast<double>(shape.d_model));
}

}  // namespace isthmus
