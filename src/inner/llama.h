// SPDX-License-Identifier: Apache-2.0
// A Llama layer (Touvron et al. arXiv:2302.13971, 2307.09288): RMSNorm, grouped queries, rotary
// positions in the half-split form of Hugging Face, SwiGLU; no biases. With qk_norm each query and
// key head is RMS-normalised before the rotation, as in Qwen3.
#pragma once

#include <memory>
#include <vector>

#include "inner/model_block.h"

namespace isthmus {

[[nodiscard]] std::vector<LayerTensor> llama_layer_tensors(const ModelShape& shape);

template <typename Real>
[[nodiscard]] std::unique_ptr<const Block<Real>> make_llama_block(const ModelShape& shape);

}  // namespace isthmus
