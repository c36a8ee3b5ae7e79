// SPDX-License-Identifier: Apache-2.0
// Linear layers over gemm.h for the two storage orders: Conv1D (in, out) with a bias, as in GPT-2,
// and Linear (out, in) without, as in Llama. x (rows, in) and y (rows, out) are contiguous.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/gemm.h"

namespace isthmus {

struct LinearShape {
  std::int64_t rows = 0, in = 0, out = 0;
  bool bf16 = false;  // multiply in bfloat16; x, y and their gradients may then be Bf16 in memory
};

// Activations and their gradients, read and written; Real follows from the weights.
template <typename Real>
using Activations = std::type_identity_t<kernels::Stored<const Real>>;
template <typename Real>
using Results = std::type_identity_t<kernels::Stored<Real>>;

/// The request y = x W + b, to which the caller adds epilogues.
template <typename Real>
[[nodiscard]] kernels::Gemm<Real> conv1d(const LinearShape& s, Activations<Real> x,
                                         const Real* weight, const Real* bias, Results<Real> y) {
  return {.m = s.rows,
          .n = s.out,
          .k = s.in,
          .a = x,
          .lda = s.in,
          .b = weight,
          .ldb = s.out,
          .c = y,
          .ldc = s.out,
          .bias = bias,
          .bf16 = s.bf16};
}

/// dx = dy W^T.
template <typename Real>
[[nodiscard]] kernels::Gemm<Real> conv1d_input_gradient(const LinearShape& s, Activations<Real> dy,
                                                        const Real* weight, Results<Real> dx) {
  return {.m = s.rows,
          .n = s.in,
          .k = s.out,
          .a = dy,
          .lda = s.out,
          .b = weight,
          .ldb = s.out,
          .b_transposed = true,
          .c = dx,
          .ldc = s.in,
          .bf16 = s.bf16};
}

/// d_weight += x^T dy, d_bias += column sums of dy.
template <typename Real>
void conv1d_weight_gradient(kernels::ThreadTeam& team, const LinearShape& s, Activations<Real> x,
                            Activations<Real> dy, Real* d_weight, Real* d_bias) {
  kernels::gemm<Real>(team, {.m = s.in,
                             .n = s.out,
                             .k = s.rows,
                             .a = x,
                             .lda = s.in,
                             .a_transposed = true,
                             .b = dy,
                             .ldb = s.out,
                             .c = d_weight,
                             .ldc = s.out,
                             .accumulate = true,
                             .column_sum = d_bias,
                             .bf16 = s.bf16});
}

// An (out, in) matrix of a Linear layer is the (in, out) matrix of the layer from its outputs to
// its inputs, so each request is the other one's of that layer.

[[nodiscard]] inline LinearShape turned(const LinearShape& s) {
  return {.rows = s.rows, .in = s.out, .out = s.in, .bf16 = s.bf16};
}

/// The request y = x W^T, to which the caller adds epilogues.
template <typename Real>
[[nodiscard]] kernels::Gemm<Real> linear(const LinearShape& s, Activations<Real> x,
                                         const Real* weight, Results<Real> y) {
  return conv1d_input_gradient<Real>(turned(s), x, weight, y);
}

/// dx = dy W.
template <typename Real>
[[nodiscard]] kernels::Gemm<Real> linear_input_gradient(const LinearShape& s, Activations<Real> dy,
                                                        const Real* weight, Results<Real> dx) {
  return conv1d<Real>(turned(s), dy, weight, nullptr, dx);
}

/// d_weight += dy^T x.
template <typename Real>
void linear_weight_gradient(kernels::ThreadTeam& team, const LinearShape& s, Activations<Real> x,
                            Activations<Real> dy, Real* d_weight) {
  conv1d_weight_gradient<Real>(team, turned(s), dy, x, d_weight, nullptr);
}

}  // namespace isthmus
