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

/// T: storage type of kept activations and wide gradients: double, float, or Bf16 for products in
/// bfloat16. With LayerKeeps::kProducts it recomputes GELU from the output of the previous matrix
/// product. A bfloat16 layer stores only the rounded output, so it keeps GELU's output.
template <typename T>
[[nodiscard]] std::unique_ptr<Block<kernels::RealOf<T>>> make_gpt2_block(const ModelShape& shape,
                                                                         LayerKeeps keeps);

}  // namespace isthmus
