// SPDX-License-Identifier: Apache-2.0
// A Llama layer (Touvron et al. arXiv:2302.13971, 2307.09288) and related decoders: norms, grouped
// queries, rotary positions in the half-split form of Hugging Face, a feed-forward part with or
// without a gate. With qk_norm queries and keys are RMS-normalised before the rotation. The
// differences between published families are fields of ModelFamily; docs/models.md has the table.
#pragma once

#include <memory>
#include <vector>

#include "inner/model/model_block.h"
#include "kernels/bf16.h"

namespace isthmus {

[[nodiscard]] std::vector<LayerTensor> llama_layer_tensors(const ModelShape& shape);

/// T: storage type of kept activations and wide gradients: double, float, or Bf16 for products in
/// bfloat16.
template <typename T>
[[nodiscard]] std::unique_ptr<Block<kernels::RealOf<T>>> make_llama_block(const ModelShape& shape,
                                                                          LayerKeeps keeps);

}  // namespace isthmus
