// SPDX-License-Identifier: Apache-2.0
// A GPT-2 layer (Radford et al. 2019): LayerNorm, fused query-key-value, causal attention,
// projection, LayerNorm, GELU (tanh form), projection; biases everywhere.
#pragma once

#include <memory>
#include <vector>

#include "inner/model_block.h"

namespace isthmus {

[[nodiscard]] std::vector<LayerTensor> gpt2_layer_tensors(const ModelShape& shape);

template <typename Real>
[[nodiscard]] std::unique_ptr<const Block<Real>> make_gpt2_block(const ModelShape& shape);

}  // namespace isthmus
