// SPDX-License-Identifier: Apache-2.0
// The kernels behind cuda/attention.h. REQUIRES (each): a shape without a refusal and at least one
// query.
#pragma once

#include "kernels/cuda/attention.h"

namespace isthmus::cuda {

inline constexpr float kLog2E = 1.4426950408889634f;
inline constexpr float kLn2 = 0.6931471805599453f;

/// Values of every query row for the backward passes, (batch, q_heads, padded_seq) each: a head has
/// rows up to `padded`; rows after the sequence give probabilities of zero.
struct RowSums {
  const float* lse = nullptr;    // of powers of two: log2(e) times that of the forward pass
  const float* delta = nullptr;  // sum over the row of out d_out
  std::int64_t padded = 0;
};
inline constexpr std::int64_t kRowPadding = 128;  // a multiple of every tile of queries

/// Products in float arithmetic; every head dimension up to kSimtHeadDim. Shared memory of a block:
/// the largest need, that of the backward pass.
inline constexpr std::int64_t kSimtHeadDim = 256;
[[nodiscard]] std::size_t simt_shared_bytes(std::int64_t head_dim);
template <typename T>
void simt_attention_forward(Stream& stream, const AttentionShape& shape, HeadsView<const T> q,
                            HeadsView<const T> k, HeadsView<const T> v, HeadsView<T> out,
                            float* lse);
template <typename T>
void simt_attention_backward(Stream& stream, const AttentionShape& shape,
                             const AttentionBackward<T>& a, const RowSums& rows);

/// Products in tensor cores. REQUIRES: head_dim a multiple of 8 up to kTensorHeadDim; every row of
/// a head begins at a multiple of 16 bytes, as do the arrays of RowSums.
inline constexpr std::int64_t kTensorHeadDim = 128;
inline constexpr int kTensorSharedBytes = 99 << 10;  // of a block; kernels use more if the device
                                                     // has more
void tensor_attention_forward(Stream& stream, const AttentionShape& shape,
                              HeadsView<const kernels::Bf16> q, HeadsView<const kernels::Bf16> k,
                              HeadsView<const kernels::Bf16> v, HeadsView<kernels::Bf16> out,
                              float* lse);
void tensor_attention_backward(Stream& stream, const AttentionShape& shape,
                               const AttentionBackward<kernels::Bf16>& a, const RowSums& rows);

}  // namespace isthmus::cuda
