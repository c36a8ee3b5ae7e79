// SPDX-License-Identifier: Apache-2.0
// A GPT-2 layer (Radford et al. 2019): LayerNorm, fused query-key-value, causal attention,
// projection, LayerNorm, GELU (tanh form), projection; biases everywhere.
#pragma once

#include <memory>
#include <vector>

#include "inner/model/model_block.h"
#include "kernels/bf16.h"

namespace isthmus {

[[nodiscard]] std::vector<LayerTensor> gpt2_layer_tensors(const ModelShape& shape);

/// T is what kept activations and wide gradients are stored as: double, float, or Bf16 for products
/// in bfloat16. Under LayerKeeps::kProducts it makes GELU again from what the product before it
/// gave, which a bfloat16 layer does not have as it was before it was rounded: that one keeps GELU.
template <typename T>
[[nodiscard]] std::unique_ptr<Block<kernels::RealOf<T>>> make_gpt2_block(const ModelShape& shape,
                                                                         LayerKeeps keeps);

}  // namespace isthmus
