// SPDX-License-Identifier: Apache-2.0
// Causal self-attention with grouped queries on the device, forward and backward, without a (T, T)
// matrix: the formulas and views of kernels/attention.h (Dao arXiv:2307.08691). With Bf16 matrix
// products have bfloat16 operands in tensor cores; sums and softmax are float. All pointers are
// device memory.
#pragma once

#include <cstddef>

#include "kernels/attention.h"
#include "kernels/cuda/device.h"

namespace isthmus::cuda {

using kernels::AttentionBackward;
using kernels::AttentionShape;
using kernels::HeadsView;

/// RETURNS: empty, or the defect of the shape and the possible values: head dimensions of 1 to 256,
/// or to 128 if a block's shared memory (shared_bytes_of_block) is less than 138 KiB, as on compute
/// capability 8.6, 8.9 and 12.0; a scale above 0; query heads a multiple of key heads.
template <typename T>
[[nodiscard]] std::string attention_refusal(const AttentionShape& shape, std::size_t shared_bytes);

/// As kernels::attention_forward. REQUIRES: no refusal. Bf16 uses tensor cores if the head
/// dimension is a multiple of 8 up to 128 and rows of heads begin at multiples of 16 bytes; else,
/// and with float, products are in float arithmetic. DETERMINISM: the same bits in every run on one
/// device model, here and below.
template <typename T>
void attention_forward(Stream& stream, const AttentionShape& shape, HeadsView<const T> q,
                       HeadsView<const T> k, HeadsView<const T> v, HeadsView<T> out, float* lse);

/// As kernels::attention_backward. scratch: attention_backward_scratch floats, for speed aligned to
/// 16 bytes.
[[nodiscard]] std::size_t attention_backward_scratch(const AttentionShape& shape);
template <typename T>
void attention_backward(Stream& stream, const AttentionShape& shape, const AttentionBackward<T>& a,
                        float* scratch);

}  // namespace isthmus::cuda
