// SPDX-License-Identifier: Apache-2.0
// The mesh of ranks inside a site: tp tensor-parallel ranks share each layer, pp pipeline stages
// share the layers, dp data-parallel groups share the samples. Plain data; pure functions.
#pragma once

#include <cstdint>

#include "inner/model_shape.h"

namespace isthmus {

struct MeshShape {
  int tp = 1, pp = 1, dp = 1;
  [[nodiscard]] int ranks() const { return tp * pp * dp; }
};

struct MeshPosition {
  int tp = 0, pp = 0, dp = 0;
};

/// Tensor-parallel ranks are neighbours, so that they share a machine: rank = (pp_i dp + dp_i) tp +
/// tp_i.
[[nodiscard]] int mesh_rank(const MeshShape& mesh, const MeshPosition& at);
[[nodiscard]] MeshPosition mesh_position(const MeshShape& mesh, int rank);

/// THROWS: ConfigError naming key, value, rule and the nearest mesh that works: tp must divide
/// query heads, key heads, d_ff and not exceed the vocabulary; pp not the layers; dp the samples of
/// a step.
void check_mesh(const ModelShape& shape, const MeshShape& mesh, std::int64_t sequences);

}  // namespace isthmus
