// SPDX-License-Identifier: Apache-2.0
// Which values a rank of a mesh works with: the tensors of its stages, and how much of each
// tensor parallelism leaves it. Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "inner/model/embedding_rows.h"
#include "inner/model/model_layout.h"
#include "plan/mesh_cost.h"

namespace isthmus::plan {

inline constexpr std::int64_t kFloatBytes = 4;

struct TensorShare {
  const TensorInfo* tensor = nullptr;
  std::int64_t elements = 0;  // of the first tensor-parallel rank, which has most
  bool whole = false;         // every tensor-parallel rank has all of it
  bool partial = false;       // and of its gradient a summand alone
  int copies = 1;             // tensor-parallel ranks that have the same share
  bool multiplies = false;    // outside the layers: counts as operations (head, final norm)
};

struct StageShare {
  LayerSpan layers;
  bool first = false, last = false;  // of all stages
  std::vector<TensorShare> tensors;
};

struct MeshShare {
  std::vector<StageShare> stages;  // of each chunk
  std::int64_t tied_copy = 0;      // values of a tied table that is on another rank too
};

/// `layout` is borrowed by the result.
[[nodiscard]] MeshShare mesh_share(const ModelLayout& layout, const MeshChoice& choice,
                                   int pipeline_rank);

/// Values of a stage.
[[nodiscard]] std::int64_t elements_of(const StageShare& stage);

/// Tokens of a micro-batch.
[[nodiscard]] std::int64_t micro_batch_rows(const MeshWorkload& workload, const MeshChoice& choice);

/// Rows of its gradient that the first stage of a tied model keeps apart.
[[nodiscard]] EmbeddingRowsSize embedding_rows_of(const MeshWorkload& workload,
                                                  const MeshChoice& choice);

/// Of a value that layers keep, but for the residual stream and norms' statistics.
[[nodiscard]] std::int64_t wide_bytes(const MeshChoice& choice);

/// What LanguageModel<float> cuts out of its memory on a tensor-parallel rank: the activations of a
/// stage's micro-batch of `rows` with its rotary tables, and the scratch of a pass, which all of a
/// rank's micro-batches share.
[[nodiscard]] std::int64_t arena_bytes(const ModelShape& shape, const MeshChoice& choice,
                                       std::int64_t layers, std::int64_t rows);
[[nodiscard]] std::int64_t working_bytes(const ModelShape& shape, const MeshChoice& choice,
                                         std::int64_t rows);

}  // namespace isthmus::plan
