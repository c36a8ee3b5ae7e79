// SPDX-License-Identifier: Apache-2.0
// A Llama layer (Touvron et al. arXiv:2302.13971, 2307.09288) and its relatives: norms, grouped
// queries, rotary positions in the half-split form of Hugging Face, a feed-forward part with or
// without a gate. With qk_norm queries and keys are RMS-normalised before the rotation. Everything
// in which published families differ is a field of ModelFamily; docs/models.md has the table.
#pragma once

#include <memory>
#include <vector>

#include "inner/model/model_block.h"
#include "kernels/bf16.h"

namespace isthmus {

[[nodiscard]] std::vector<LayerTensor> llama_layer_tensors(const ModelShape& shape);

/// T is what kept activations and wide gradients are stored as: double, float, or Bf16 for products
/// in bfloat16.
template <typename T>
[[nodiscard]] std::unique_ptr<Block<kernels::RealOf<T>>> make_llama_block(const ModelShape& shape,
                                                                          LayerKeeps keeps);

}  // namespace isthmus
