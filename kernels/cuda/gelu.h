// SPDX-License-Identifier: Apache-2.0
// The formulas of kernels/activation_math.h with few instructions: one exponential and one
// division.
#pragma once

#include "kernels/activation_math.h"
#include "kernels/cuda/simt.h"

namespace isthmus::cuda {

__device__ inline float fast_sigmoid(float x) { return __fdividef(1.f, 1.f + __expf(-x)); }

/// Twice the argument of GELU's tanh: (1 + tanh(u)) / 2 = sigmoid(2 u).
__device__ inline float gelu_argument(float x) {
  constexpr auto kTwoSlopes = static_cast<float>(2 * kernels::kGeluSlope);
  constexpr auto kCubic = static_cast<float>(kernels::kGeluCubic);
  return kTwoSlopes * x * (1.f + kCubic * x * x);
}

__device__ inline float fast_gelu(float x) { return x * fast_sigmoid(gelu_argument(x)); }

// gelu'(x) = s + x s (1 - s) (2 u)', s = sigmoid(2 u). x^2 is limited: s (1 - s) is zero there, and
// an infinite square would give a NaN.
__device__ inline float fast_gelu_derivative(float x) {
  constexpr auto kTwoSlopes = static_cast<float>(2 * kernels::kGeluSlope);
  constexpr auto kCubic = static_cast<float>(kernels::kGeluCubic);
  constexpr float kMostSquare = 4096.f;
  const float s = fast_sigmoid(gelu_argument(x));
  return s + x * s * (1.f - s) * kTwoSlopes * (1.f + 3.f * kCubic * fminf(x * x, kMostSquare));
}

}  // namespace isthmus::cuda
