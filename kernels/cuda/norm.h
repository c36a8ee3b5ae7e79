// SPDX-License-Identifier: Apache-2.0
// LayerNorm and RMSNorm on the device, with what stands before them in a residual stream. The
// arithmetic is that of kernels/norm.h. The stream and statistics are float, what products read and
// write is T: float or Bf16. All pointers are device memory, rows contiguous.
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
  const T* branch = nullptr;      // (rows, channels), added to x; null: nothing
  float* s = nullptr;             // (rows, channels); may be x; null where there is no branch
  const float* weight = nullptr;  // (channels,)
  const float* bias = nullptr;    // (channels,) or null
  T* y = nullptr;                 // (rows, channels)
  float* mean = nullptr;          // (rows,), LayerNorm only
  float* rstd = nullptr;          // (rows,)
};
template <typename T>
void norm_forward(Stream& stream, const NormForward<T>& norm);

/// d_stream += the gradient of y through the norm; d_branch := d_stream afterwards, as T.
template <typename T>
struct NormBackward {
  std::int64_t rows = 0, channels = 0;
  bool centred = false;
  const T* dy = nullptr;          // (rows, channels)
  const float* s = nullptr;       // (rows, channels): what was normalised
  const float* weight = nullptr;  // (channels,)
  const float* mean = nullptr;    // (rows,), LayerNorm only
  const float* rstd = nullptr;    // (rows,)
  float* d_stream = nullptr;      // (rows, channels)
  T* d_branch = nullptr;          // (rows, channels) or null: what the product before reads
  float* d_weight = nullptr;      // (channels,): accumulated
  float* d_bias = nullptr;        // (channels,): accumulated, or null
  float* scratch = nullptr;       // norm_backward_scratch(channels) floats
};
[[nodiscard]] std::size_t norm_backward_scratch(std::int64_t channels);
/// DETERMINISM: the same bits in every run on one kind of device.
template <typename T>
void norm_backward(Stream& stream, const NormBackward<T>& norm);

/// RMSNorm of each head of queries or keys that lie in rows `row` apart (Qwen3), and its gradient.
template <typename T>
struct HeadNorm {
  std::int64_t rows = 0, heads = 0, head_dim = 0, row = 0;
  double eps = 0;
  const float* weight = nullptr;  // (head_dim,)
};
/// y (rows, heads, head_dim), contiguous, from x, the first head of the first row. rstd (rows,
/// heads).
template <typename T>
void head_norm_forward(Stream& stream, const HeadNorm<T>& norm, const T* x, T* y, float* rstd);
/// dx, `row` apart as x, := the gradient; may be x. dy (rows, heads, head_dim), contiguous.
/// d_weight is accumulated. scratch: head_norm_scratch(head_dim) floats.
[[nodiscard]] std::size_t head_norm_scratch(std::int64_t head_dim);
template <typename T>
void head_norm_backward(Stream& stream, const HeadNorm<T>& norm, const T* dy, const T* x,
                        const float* rstd, T* dx, float* d_weight, float* scratch);

}  // namespace isthmus::cuda
