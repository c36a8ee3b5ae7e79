// SPDX-License-Identifier: Apache-2.0
// The traffic of a mesh's rank with the others, dimension by dimension. Pure functions; used by
// rank_cost (mesh_cost.h).
#pragma once

#include "plan/mesh_cost.h"
#include "plan/mesh_share.h"

namespace isthmus::plan {

/// The same volume `count` times, sequentially.
[[nodiscard]] Volume scaled(Volume one, std::int64_t count);
/// Collectives over n ranks of arrays of `bytes`, by ring algorithms; nothing for n = 1.
[[nodiscard]] Volume all_reduce(std::int64_t n, std::int64_t bytes, std::int64_t count = 1);
/// A reduce-scatter of `bytes`, or an all-gather to `bytes`.
[[nodiscard]] Volume half_all_reduce(std::int64_t n, std::int64_t bytes, std::int64_t count = 1);

/// Tensor-parallel operations of one micro-batch in a stage.
[[nodiscard]] Volume tensor_forward(const MeshWorkload& workload, const MeshChoice& choice,
                                    const StageShare& stage);
[[nodiscard]] Volume tensor_backward(const MeshWorkload& workload, const MeshChoice& choice,
                                     const StageShare& stage);
/// Of the second part of a split backward pass: with a split sequence, the repeated gather.
[[nodiscard]] Volume tensor_weight(const MeshWorkload& workload, const MeshChoice& choice,
                                   const StageShare& stage);

/// Of one message between stages: the residual stream of a micro-batch.
[[nodiscard]] std::int64_t message_bytes(const MeshWorkload& workload, const MeshChoice& choice);

/// Gradients are reduced once a step (ZeRO 0, 1), or with a part of the model at a time after each
/// micro-batch (2, 3); weights are gathered once, or with a part at a time for each pass (3).
[[nodiscard]] DataVolumes data_volumes(const MeshWorkload& workload, const MeshChoice& choice,
                                       const MeshShare& share, int pipeline_rank);

/// Adds a step's volumes other than the passes': pipeline, data, embeddings, gradients that
/// tensor-parallel ranks share.
void add_step_volumes(const ModelLayout& layout, const MeshWorkload& workload,
                      const MeshChoice& choice, const MeshShare& share, RankVolumes& volumes);

/// RankVolumes::site. `share` belongs to the same rank.
[[nodiscard]] Volume site_volume(const ModelLayout& layout, const MeshChoice& choice,
                                 const MeshShare& share, int pipeline_rank);

}  // namespace isthmus::plan
