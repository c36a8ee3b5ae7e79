// SPDX-License-Identifier: Apache-2.0
// SwiGLU and GELU (tanh form) on the device; formulas in kernels/activation_math.h. T: float or
// Bf16. All pointers are device memory.
#pragma once

#include <cstdint>

#include "kernels/bf16.h"
#include "kernels/cuda/device.h"

namespace isthmus::cuda {

using kernels::Bf16;

/// out (rows, columns) = silu(gate) * up, for rows [gate | up] (rows, 2 columns).
template <typename T>
void swiglu_forward(Stream& stream, std::int64_t rows, std::int64_t columns, const T* gate_up,
                    T* out);
/// gate_up := its gradient; d_out (rows, columns).
template <typename T>
void swiglu_backward(Stream& stream, std::int64_t rows, std::int64_t columns, const T* d_out,
                     T* gate_up);

/// out = gelu(x), (n,).
template <typename T>
void gelu_forward(Stream& stream, std::int64_t n, const T* x, T* out);
/// d_out := d_out * gelu'(x), (n,).
template <typename T>
void gelu_backward(Stream& stream, std::int64_t n, const T* x, T* d_out);

/// to := from, rounded where To is Bf16; (n,).
template <typename From, typename To>
void convert(Stream& stream, std::int64_t n, const From* from, To* to);

/// sum = x + y, (n,); sum may be x.
template <typename T>
void add(Stream& stream, std::int64_t n, const float* x, const T* y, float* sum);

/// sum (columns,) += the column sums of x (rows, columns); scratch: column_sum_scratch floats.
[[nodiscard]] std::size_t column_sum_scratch(std::int64_t columns);
template <typename T>
void add_column_sums(Stream& stream, std::int64_t rows, std::int64_t columns, const T* x,
                     float* sum, float* scratch);

}  // namespace isthmus::cuda
