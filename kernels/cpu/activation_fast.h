// SPDX-License-Identifier: Apache-2.0
// GELU, SwiGLU and rotations on spans. Include after one of simd_*.h.
#pragma once

#include <cstdint>

#include "kernels/cpu/simd_math.h"

namespace isthmus::kernels {
namespace {

/// slope: null, or an output that may be x itself.
inline void gelu_span(std::int64_t n, const float* x, float* value, float* slope) {
  for (std::int64_t i = 0; i < n; i += Simd::kWidth) {
    const Simd::Mask mask = Simd::first(n - i);
    const GeluPair gelu = gelu_pair(Simd::load(x + i, mask));
    Simd::store(value + i, gelu.value, mask);
    if (slope != nullptr) Simd::store(slope + i, gelu.slope, mask);
  }
}

template <typename T>
void swiglu_span(std::int64_t n, const T* gate, const T* up, T* out) {
  for (std::int64_t i = 0; i < n; i += Simd::kWidth) {
    const Simd::Mask mask = Simd::first(n - i);
    const Simd::V g = Simd::load(gate + i, mask);
    const Simd::V silu = Simd::mul(g, sigmoid(g));
    Simd::store(out + i, Simd::mul(silu, Simd::load(up + i, mask)), mask);
  }
}

template <typename T>
void swiglu_gradient_span(std::int64_t n, const T* gate, const T* up, const T* d_out, T* d_gate,
                          T* d_up) {
  const Simd::V one = Simd::set(1.0f);
  for (std::int64_t i = 0; i < n; i += Simd::kWidth) {
    const Simd::Mask mask = Simd::first(n - i);
    const Simd::V g = Simd::load(gate + i, mask);
    const Simd::V u = Simd::load(up + i, mask);
    const Simd::V d = Simd::load(d_out + i, mask);
    const Simd::V sigma = sigmoid(g);
    Simd::store(d_up + i, Simd::mul(d, Simd::mul(g, sigma)), mask);
    const Simd::V slope = Simd::mul(sigma, Simd::fma(g, Simd::sub(one, sigma), one));
    Simd::store(d_gate + i, Simd::mul(Simd::mul(d, u), slope), mask);
  }
}

/// Rotates the pairs (low[i], high[i]) by the angles given by cosine and direction * sine.
template <typename T>
void rotate_span(std::int64_t n, const float* cosine, const float* sine, float direction, T* low,
                 T* high) {
  const Simd::V sign = Simd::set(direction);
  for (std::int64_t i = 0; i < n; i += Simd::kWidth) {
    const Simd::Mask mask = Simd::first(n - i);
    const Simd::V c = Simd::load(cosine + i, mask);
    const Simd::V s = Simd::mul(sign, Simd::load(sine + i, mask));
    const Simd::V a = Simd::load(low + i, mask);
    const Simd::V b = Simd::load(high + i, mask);
    Simd::store(low + i, Simd::fnma(b, s, Simd::mul(a, c)), mask);
    Simd::store(high + i, Simd::fma(a, s, Simd::mul(b, c)), mask);
  }
}

}  // namespace
}  // namespace isthmus::kernels
