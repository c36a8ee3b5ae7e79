// SPDX-License-Identifier: Apache-2.0
// Rules shared by making and by planning a mesh. Pure functions.
#pragma once

#include <algorithm>
#include <cstdint>

#include "inner/mesh/pipeline_schedule.h"
#include "inner/model/model_shape.h"

namespace isthmus {

/// The divisor of n nearest to `wanted`, the smaller of two equally near.
[[nodiscard]] inline std::int64_t nearest_divisor(std::int64_t n, std::int64_t wanted) {
  for (std::int64_t away = 0; away < std::max(n, wanted); ++away) {
    if (wanted - away >= 1 && n % (wanted - away) == 0) return wanted - away;
    if (wanted + away <= n && n % (wanted + away) == 0) return wanted + away;
  }
  return 1;
}

/// Cost of the output head in layers of 12 d^2 weights.
[[nodiscard]] inline double head_layers(const ModelShape& shape) {
  return static_cast<double>(shape.vocab) / (12 * static_cast<double>(shape.d_model));
}

/// True if a stage holds gradients of one micro-batch at a time; ZeRO 2 and 3 have memory only for
/// that. False for gpipe, where the last stage runs all heads before the first backward pass, and
/// for zb-h1, where gradients of norms come long before those of matrix products.
[[nodiscard]] inline bool one_gradient_at_a_time(PipelineKind kind) {
  return kind == PipelineKind::k1F1B || kind == PipelineKind::kInterleaved;
}

}  // namespace isthmus
