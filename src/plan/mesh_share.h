// SPDX-License-Identifier: Apache-2.0
// The values of a rank of a mesh: the tensors of its stages, and its share of each under tensor
// parallelism. Pure functions.
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
  std::int64_t elements = 0;  // of the first tensor-parallel rank, which has the most
  bool whole = false;         // every tensor-parallel rank has all of it
  bool partial = false;       // and only a summand of its gradient
  int copies = 1;             // tensor-parallel ranks with the same share
  bool multiplies = false;    // outside the layers: counts as operations (head, final norm)
};

struct StageShare {
  LayerSpan layers;
  bool first = false, last = false;  // of all stages
  std::vector<TensorShare> tensors;
};

struct MeshShare {
  std::vector<StageShare> stages;  // of each chunk
  std::int64_t tied_copy = 0;      // values of a tied table that another rank has too
};

/// `layout` is borrowed by the result.
[[nodiscard]] MeshShare mesh_share(const ModelLayout& layout, const MeshChoice& choice,
                                   int pipeline_rank);

/// Values of a stage.
[[nodiscard]] std::int64_t elements_of(const StageShare& stage);

/// Tokens of a micro-batch.
[[nodiscard]] std::int64_t micro_batch_rows(const MeshWorkload& workload, const MeshChoice& choice);

/// Gradient rows that the first stage of a tied model stores separately.
[[nodiscard]] EmbeddingRowsSize embedding_rows_of(const MeshWorkload& workload,
                                                  const MeshChoice& choice);

/// Bytes of a value that layers keep, except for the residual stream and norms' statistics.
[[nodiscard]] std::int64_t wide_bytes(const MeshChoice& choice);

/// The memory of LanguageModel<float> on a tensor-parallel rank: the activations of a stage's
/// micro-batch of `rows` with its rotary tables (arena), and the scratch of a pass, which all of a
/// rank's micro-batches share (working).
[[nodiscard]] std::int64_t arena_bytes(const ModelShape& shape, const MeshChoice& choice,
                                       std::int64_t layers, std::int64_t rows);
[[nodiscard]] std::int64_t working_bytes(const ModelShape& shape, const MeshChoice& choice,
                                         std::int64_t rows);

}  // namespace isthmus::plan
