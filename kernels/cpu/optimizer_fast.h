// SPDX-License-Identifier: Apache-2.0
// AdamW and the norm on spans; multiply and add stay separate, so bits equal those of the reference
// for every instruction set. Include after one of simd_*.h.
#pragma once

#include <cstdint>

#include "kernels/optimizer_math.h"

namespace isthmus::kernels {
namespace {

inline void adamw_span(const AdamWConstants<float>& k, std::int64_t n, float* p, const float* g,
                       float* m, float* v) {
  const Simd::V decay = Simd::set(k.decay);
  const Simd::V keep1 = Simd::set(k.keep1);
  const Simd::V beta2 = Simd::set(k.beta2);
  const Simd::V keep2 = Simd::set(k.keep2);
  const Simd::V rate = Simd::set(k.rate);
  const Simd::V root = Simd::set(k.root);
  const Simd::V eps = Simd::set(k.eps);
  const Simd::V factor = Simd::set(k.factor);
  for (std::int64_t i = 0; i < n; i += Simd::kWidth) {
    const Simd::Mask mask = Simd::first(n - i);
    const Simd::V gradient = Simd::mul(factor, Simd::load(g + i, mask));
    Simd::V first = Simd::load(m + i, mask);
    first = Simd::add(first, Simd::mul(keep1, Simd::sub(gradient, first)));
    Simd::V second = Simd::mul(beta2, Simd::load(v + i, mask));
    second = Simd::add(second, Simd::mul(Simd::mul(keep2, gradient), gradient));
    const Simd::V below = Simd::add(Simd::div(Simd::sqrt(second), root), eps);
    const Simd::V kept = Simd::mul(Simd::load(p + i, mask), decay);
    Simd::store(m + i, first, mask);
    Simd::store(v + i, second, mask);
    Simd::store(p + i, Simd::sub(kept, Simd::mul(rate, Simd::div(first, below))), mask);
  }
}

/// Eight sums, element i in sum i mod 8, folded pairwise: a fixed order that suits vector units.
inline double squares_span(std::int64_t n, const float* x) {
  double sum[8] = {};
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (int j = 0; j < 8; ++j) {
      const double value = static_cast<double>(x[i + j]);
      sum[j] += value * value;
    }
  }
  for (; i < n; ++i) {
    const double value = static_cast<double>(x[i]);
    sum[i % 8] += value * value;
  }
  return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

}  // namespace
}  // namespace isthmus::kernels
