// SPDX-License-Identifier: Apache-2.0
// LayerNorm and RMSNorm on the device, with the addition to the residual stream before them. The
// arithmetic is that of kernels/norm.h. Stream and statistics are float; operands of matrix
// products are T: float or Bf16. All pointers are device memory, rows contiguous.
#pragma once

#include <cstdint>

#include "kernels/bf16.h"
#include "kernels/cuda/device.h"

namespace isthmus::cuda {

using kernels::Bf16;

/// s = x + branch; y = (s - mean) rstd weight + bias.
template <typename T>
struct NormForward {
  std::int64_t rows = 0, channels = 0;
  double eps = 0;
  bool centred = false;           // LayerNorm; else RMSNorm: mean 0
  const float* x = nullptr;       // (rows, channels)
  const T* branch = nullptr;      // (rows, channels), added to x; null: not added
  float* s = nullptr;             // (rows, channels); may be x; null if there is no branch
  const float* weight = nullptr;  // (channels,)
  const float* bias = nullptr;    // (channels,) or null
  T* y = nullptr;                 // (rows, channels)
  float* mean = nullptr;          // (rows,), LayerNorm only
  float* rstd = nullptr;          // (rows,)
};
template <typename T>
void norm_forward(Stream& stream, const NormForward<T>& norm);

/// d_stream += the gradient of y through the norm; then d_branch := d_stream, as T.
template <typename T>
struct NormBackward {
  std::int64_t rows = 0, channels = 0;
  bool centred = false;
  const T* dy = nullptr;          // (rows, channels)
  const float* s = nullptr;       // (rows, channels): the norm's input
  const float* weight = nullptr;  // (channels,)
  const float* mean = nullptr;    // (rows,), LayerNorm only
  const float* rstd = nullptr;    // (rows,)
  float* d_stream = nullptr;      // (rows, channels)
  T* d_branch = nullptr;          // (rows, channels) or null: operand of the previous matrix
                                  // product
  float* d_weight = nullptr;      // (channels,): added to
  float* d_bias = nullptr;        // (channels,): added to, or null
  float* scratch = nullptr;       // norm_backward_scratch(channels) floats
};
[[nodiscard]] std::size_t norm_backward_scratch(std::int64_t channels);
/// DETERMINISM: the same bits in every run on one device model.
template <typename T>
void norm_backward(Stream& stream, const NormBackward<T>& norm);

/// RMSNorm of each head of queries or keys in rows `row` apart (Qwen3), and its gradient.
template <typename T>
struct HeadNorm {
  std::int64_t rows = 0, heads = 0, head_dim = 0, row = 0;
  double eps = 0;
  const float* weight = nullptr;  // (head_dim,)
};
/// y (rows, heads, head_dim), contiguous; x: the first head of the first row. rstd (rows, heads).
template <typename T>
void head_norm_forward(Stream& stream, const HeadNorm<T>& norm, const T* x, T* y, float* rstd);
/// dx, with rows `row` apart as x, := the gradient; may be x. dy (rows, heads, head_dim),
/// contiguous. d_weight is added to. scratch: head_norm_scratch(head_dim) floats.
[[nodiscard]] std::size_t head_norm_scratch(std::int64_t head_dim);
template <typename T>
void head_norm_backward(Stream& stream, const HeadNorm<T>& norm, const T* dy, const T* x,
                        const float* rstd, T* dx, float* d_weight, float* scratch);

}  // namespace isthmus::cuda
