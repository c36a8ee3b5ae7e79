// SPDX-License-Identifier: Apache-2.0
// LayerNorm and RMSNorm over the last dimension.
// Rows are contiguous: x (rows, channels) row-major. Per-head RMSNorm of queries and keys is the
// same call with rows = B T heads, channels = head_dim.
// Stream is the type of the input, T that of the output: each double, float or Bf16; weights,
// statistics and sums are RealOf<T>.
#pragma once

#include <cstdint>

#include "kernels/bf16.h"
#include "kernels/thread_team.h"

namespace isthmus::kernels {

/// y = (x - mean) * rstd * weight + bias.
template <typename T, typename Stream = RealOf<T>>
struct NormForward {
  using Real = RealOf<T>;
  std::int64_t rows = 0, channels = 0;
  double eps = 0;
  const Stream* x = nullptr;     // (rows, channels)
  const Real* weight = nullptr;  // (channels,)
  const Real* bias = nullptr;    // (channels,) or null; LayerNorm only
  double weight_offset = 0;      // added to each weight
  T* y = nullptr;                // (rows, channels); may be x
  Real* mean = nullptr;          // (rows,), LayerNorm only
  Real* rstd = nullptr;          // (rows,)
};

/// ds = gradient through the norm (+ d_sum, the gradient of s from its other uses).
template <typename T, typename Stream = RealOf<T>>
struct NormBackward {
  using Real = RealOf<T>;
  std::int64_t rows = 0, channels = 0;
  const T* dy = nullptr;          // (rows, channels)
  const Stream* s = nullptr;      // (rows, channels): the norm's input
  const Real* weight = nullptr;   // (channels,)
  double weight_offset = 0;       // added to each weight
  const Real* mean = nullptr;     // (rows,), LayerNorm only
  const Real* rstd = nullptr;     // (rows,)
  const Stream* d_sum = nullptr;  // (rows, channels) or null
  Stream* ds = nullptr;           // (rows, channels): overwritten; may be dy or d_sum
  Real* d_weight = nullptr;       // (channels,): added to; null: skipped
  Real* d_bias = nullptr;         // (channels,): added to; null: skipped; LayerNorm only
};

/// rstd = 1 / sqrt(mean((x - mean)^2) + eps).
template <typename T, typename Stream = RealOf<T>>
void layer_norm_forward(ThreadTeam& team, const NormForward<T, Stream>& norm);
/// DETERMINISM: weight gradients add blocks of rows that the shape fixes, in row order.
template <typename T, typename Stream = RealOf<T>>
void layer_norm_backward(ThreadTeam& team, const NormBackward<T, Stream>& norm);

/// mean = 0, rstd = 1 / sqrt(mean(x^2) + eps).
template <typename T, typename Stream = RealOf<T>>
void rms_norm_forward(ThreadTeam& team, const NormForward<T, Stream>& norm);
template <typename T, typename Stream = RealOf<T>>
void rms_norm_backward(ThreadTeam& team, const NormBackward<T, Stream>& norm);

}  // namespace isthmus::kernels
