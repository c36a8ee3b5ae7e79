// SPDX-License-Identifier: Apache-2.0
// Linear layers over kernels/cuda/matmul.h for the two storage orders, as model_linear.h has them
// for the CPU. x (rows, in) and y (rows, out) are contiguous; T: float or Bf16.
#pragma once

#include <cstdint>

#include "kernels/cuda/matmul.h"

namespace isthmus {

struct CudaLinear {
  std::int64_t rows = 0, in = 0, out = 0;
};

/// y = x W + bias (null: none) for an (in, out) matrix; the caller may add another epilogue.
template <typename T>
[[nodiscard]] cuda::Matmul cuda_conv1d(const CudaLinear& s, const T* x, const T* weight,
                                       const T* bias, T* y) {
  return {.m = s.rows,
          .n = s.out,
          .k = s.in,
          .a = x,
          .b = weight,
          .lda = s.in,
          .ldb = s.out,
          .ldc = s.out,
          .c = y,
          .epilogue = bias == nullptr ? cuda::Epilogue::kNone : cuda::Epilogue::kBias,
          .bias = bias,
          .aux = {}};
}

/// dx = dy W^T of an (in, out) matrix.
template <typename T>
[[nodiscard]] cuda::Matmul cuda_conv1d_input_gradient(const CudaLinear& s, const T* dy,
                                                      const T* weight, T* dx) {
  return {.m = s.rows,
          .n = s.in,
          .k = s.out,
          .a = dy,
          .b = weight,
          .lda = s.out,
          .ldb = s.out,
          .ldc = s.in,
          .b_transposed = true,
          .c = dx,
          .aux = {}};
}

/// d_weight += x^T dy, (in, out).
template <typename T>
[[nodiscard]] cuda::Matmul cuda_conv1d_weight_gradient(const CudaLinear& s, const T* x, const T* dy,
                                                       float* d_weight) {
  return {.m = s.in,
          .n = s.out,
          .k = s.rows,
          .a = x,
          .b = dy,
          .lda = s.in,
          .ldb = s.out,
          .ldc = s.out,
          .a_transposed = true,
          .c = d_weight,
          .accumulate = true,
          .aux = {}};
}

// An (out, in) matrix is the (in, out) matrix of the layer from its outputs to its inputs, so each
// request is the other one's of that layer.

[[nodiscard]] inline CudaLinear turned(const CudaLinear& s) {
  return {.rows = s.rows, .in = s.out, .out = s.in};
}

/// y = x W^T of an (out, in) matrix.
template <typename T>
[[nodiscard]] cuda::Matmul cuda_linear(const CudaLinear& s, const T* x, const T* weight, T* y) {
  return cuda_conv1d_input_gradient(turned(s), x, weight, y);
}

/// dx = dy W of an (out, in) matrix.
template <typename T>
[[nodiscard]] cuda::Matmul cuda_linear_input_gradient(const CudaLinear& s, const T* dy,
                                                      const T* weight, T* dx) {
  return cuda_conv1d(turned(s), dy, weight, static_cast<const T*>(nullptr), dx);
}

/// d_weight += dy^T x, (out, in).
template <typename T>
[[nodiscard]] cuda::Matmul cuda_linear_weight_gradient(const CudaLinear& s, const T* x, const T* dy,
                                                       float* d_weight) {
  return cuda_conv1d_weight_gradient(turned(s), dy, x, d_weight);
}

}  // namespace isthmus
