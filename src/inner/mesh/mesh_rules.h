// SPDX-License-Identifier: Apache-2.0
// Rules that making a mesh and planning one share. Pure functions.
#pragma once

#include <algorithm>
#include <cstdint>

#include "inner/mesh/pipeline_schedule.h"
#include "inner/model/model_shape.h"

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

/// Whether a stage has gradients of one micro-batch at a time, which is what ZeRO 2 and 3 have room
/// for: in gpipe the last stage takes all heads' before the first backward pass, in zb-h1 those of
/// norms come long before those of products.
[[nodiscard]] inline bool one_gradient_at_a_time(PipelineKind kind) {
  return kind == PipelineKind::k1F1B || kind == PipelineKind::kInterleaved;
}

}  // namespace isthmus
