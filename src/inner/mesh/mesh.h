// SPDX-License-Identifier: Apache-2.0
// The mesh of ranks inside a site: tp tensor-parallel ranks share each layer, pp pipeline stages
// share the layers, dp data-parallel groups share the samples. Plain data; pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/base/rank_finding.h"
#include "inner/model/model_shape.h"

namespace isthmus {

struct MeshShape {
  int tp = 1, pp = 1, dp = 1;
  /// True: tensor-parallel ranks split norms and the residual stream by tokens
  /// (inner/model/tensor_parallel.h).
  bool sequence_parallel = false;
  [[nodiscard]] int ranks() const { return tp * pp * dp; }
  /// Number of parts into which a micro-batch's rows of the residual stream are split.
  [[nodiscard]] int row_shares() const { return sequence_parallel ? tp : 1; }
};

/// Tensor-parallel ranks are adjacent, so that they share a machine: rank = (pp_i dp + dp_i) tp +
/// tp_i.
[[nodiscard]] int mesh_rank(const MeshShape& mesh, const MeshPosition& at);
[[nodiscard]] MeshPosition mesh_position(const MeshShape& mesh, int rank);

/// Why `mesh.tp` ranks cannot share the layers, with key, value, rule and the nearest valid tp;
/// empty if they can. tp must divide query heads and d_ff, divide key heads or be a multiple of
/// them, not exceed the vocabulary, and with a split sequence divide `context`.
[[nodiscard]] std::optional<std::string> tensor_parallel_problem(const ModelShape& shape,
                                                                 const MeshShape& mesh,
                                                                 std::int64_t context);

/// THROWS: ConfigError with the above, or naming key, value, rule and the nearest valid mesh: pp
/// must not exceed the layers; dp must divide the samples of a step (`sequences` of `context`
/// tokens).
void check_mesh(const ModelShape& shape, const MeshShape& mesh, std::int64_t sequences,
                std::int64_t context);

}  // namespace isthmus
