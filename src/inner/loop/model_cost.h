// SPDX-License-Identifier: Apache-2.0
// Costs of a model: floating-point operations of a training step and bytes of memory of a worker.
// Pure functions of shapes, for `plan`, `doctor` and `train --dry-run`.
#pragma once

#include <cstdint>

#include "inner/mesh/mesh_rank.h"
#include "inner/model/model_layout.h"
#include "isthmus/config.h"

namespace isthmus {

/// Operations of forward and backward per token: 6 N + 12 L (heads head_dim) T. N counts all
/// parameters except positions and an untied embedding; a tied head once. T is `context`, in a
/// layer with a sliding window at most the window. Attention is counted in full, not halved for
/// causality, as is usual. For a layout of adapters with A values: 4 N + 6 A, and attention as
/// before, since the frozen weights have no gradients.
[[nodiscard]] double training_flops_per_token(const ModelLayout& layout, std::int64_t context);

/// Operations of the optimizer's matrix products in one step: Muon's orthogonalisation; 0 for
/// elementwise optimizers.
[[nodiscard]] double optimizer_flops(const ModelLayout& layout, const InnerConfig& inner);

struct MemoryEstimate {
  std::int64_t parameters = 0;  // fp32 values
  std::int64_t gradients = 0;
  std::int64_t moments = 0;      // of the inner optimizer
  std::int64_t update = 0;       // scratch of the update: Muon's, for the largest matrix
  std::int64_t activations = 0;  // arena of one micro-batch; a step's rows of a tied embedding
  std::int64_t logits = 0;       // one chunk of logits
  std::int64_t shares = 0;       // weights, gradients and moments that a mesh's ranks hold
  [[nodiscard]] std::int64_t total() const {
    return parameters + gradients + moments + update + activations + logits + shares;
  }
  MemoryEstimate& operator+=(const MemoryEstimate& other) {
    parameters += other.parameters;
    gradients += other.gradients;
    moments += other.moments;
    update += other.update;
    activations += other.activations;
    logits += other.logits;
    shares += other.shares;
    return *this;
  }
};

/// Bytes of one worker's inner loop with `rows` = sequences * context of each of a step's
/// `micro_batches`. Not counted: the outer loop's anchors, batches, packing buffers of the kernels
/// (a few MiB).
[[nodiscard]] MemoryEstimate training_memory(const ModelLayout& layout, const InnerConfig& inner,
                                             std::int64_t rows,
                                             Recompute recompute = Recompute::kNone,
                                             bool bf16 = false, std::int64_t micro_batches = 1);

/// The same for a mesh: the sum of ranks that are threads, or the first of ranks that are
/// processes. `activations` holds all bytes of these ranks except their shares of the state,
/// buffers included; `update` includes a copy of the weights, for evaluations. REQUIRES: the mesh
/// fits the model (check_mesh).
[[nodiscard]] MemoryEstimate mesh_memory(const ModelLayout& layout, const InnerConfig& inner,
                                         const MeshOptions& options);

/// The same for a loop with forward passes only, with a copy of the largest layer (`update`) for
/// perturbed values.
[[nodiscard]] MemoryEstimate inference_memory(const ModelLayout& layout, std::int64_t rows,
                                              bool bf16 = false);

}  // namespace isthmus
