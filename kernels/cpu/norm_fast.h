// SPDX-License-Identifier: Apache-2.0
// LayerNorm and RMSNorm, forward and backward, row by row. kCentred: LayerNorm, which subtracts the
// mean; RMSNorm does not. T: type of the results and their gradients; Stream: of the residual
// stream. Include after one of simd_*.h.
#pragma once

#include <math.h>

#include <cstdint>

#include "kernels/norm.h"

namespace isthmus::kernels {
namespace {

template <bool kCentred, typename T, typename Stream>
void norm_forward_row(const NormForward<T, Stream>& f, std::int64_t r) {
  const std::int64_t c = f.channels;
  const float inverse = 1.0f / static_cast<float>(c);
  const Stream* s = f.x + r * c;
  float mean = 0;
  if constexpr (kCentred) {
    Simd::V sum = Simd::zero();
    for (std::int64_t i = 0; i < c; i += Simd::kWidth) {
      sum = Simd::add(sum, Simd::load(s + i, Simd::first(c - i)));
    }
    mean = Simd::sum(sum) * inverse;
    f.mean[r] = mean;
  }
  const Simd::V centre = Simd::set(mean);
  Simd::V squares = Simd::zero();
  for (std::int64_t i = 0; i < c; i += Simd::kWidth) {
    const Simd::Mask mask = Simd::first(c - i);
    const Simd::V d = Simd::select(mask, Simd::sub(Simd::load(s + i, mask), centre), Simd::zero());
    squares = Simd::fma(d, d, squares);
  }
  const float rstd = 1.0f / ::sqrtf(Simd::sum(squares) * inverse + static_cast<float>(f.eps));
  f.rstd[r] = rstd;
  const Simd::V factor = Simd::set(rstd);
  const Simd::V offset = Simd::set(static_cast<float>(f.weight_offset));
  for (std::int64_t i = 0; i < c; i += Simd::kWidth) {
    const Simd::Mask mask = Simd::first(c - i);
    const Simd::V d = Simd::mul(Simd::sub(Simd::load(s + i, mask), centre), factor);
    Simd::V y = Simd::mul(d, Simd::add(Simd::load(f.weight + i, mask), offset));
    if (f.bias != nullptr) y = Simd::add(y, Simd::load(f.bias + i, mask));
    Simd::store(f.y + r * c + i, y, mask);
  }
}

/// The formula is in norm.cpp. This row's share is added to d_weight and d_bias (null: not
/// requested).
template <bool kCentred, typename T, typename Stream>
void norm_backward_row(const NormBackward<T, Stream>& n, std::int64_t r, float* d_weight,
                       float* d_bias) {
  const std::int64_t c = n.channels;
  const float inverse = 1.0f / static_cast<float>(c);
  const T* dy = n.dy + r * c;
  const Stream* s = n.s + r * c;
  const Simd::V centre = Simd::set(kCentred ? n.mean[r] : 0.0f);
  const Simd::V rstd = Simd::set(n.rstd[r]);
  const Simd::V offset = Simd::set(static_cast<float>(n.weight_offset));
  Simd::V sum_g = Simd::zero();
  Simd::V sum_gn = Simd::zero();
  for (std::int64_t i = 0; i < c; i += Simd::kWidth) {
    const Simd::Mask mask = Simd::first(c - i);
    const Simd::V normal = Simd::mul(Simd::sub(Simd::load(s + i, mask), centre), rstd);
    const Simd::V d = Simd::load(dy + i, mask);
    const Simd::V g =
        Simd::mul(d, Simd::add(Simd::load(n.weight + i, mask), offset));  // d: zero beyond c
    sum_g = Simd::add(sum_g, g);
    sum_gn = Simd::fma(g, normal, sum_gn);
    Simd::store(d_weight + i, Simd::fma(d, normal, Simd::load(d_weight + i, mask)), mask);
    if (d_bias != nullptr) {
      Simd::store(d_bias + i, Simd::add(d, Simd::load(d_bias + i, mask)), mask);
    }
  }
  const Simd::V mean_g = Simd::set(kCentred ? Simd::sum(sum_g) * inverse : 0.0f);
  const Simd::V mean_gn = Simd::set(Simd::sum(sum_gn) * inverse);
  for (std::int64_t i = 0; i < c; i += Simd::kWidth) {
    const Simd::Mask mask = Simd::first(c - i);
    const Simd::V normal = Simd::mul(Simd::sub(Simd::load(s + i, mask), centre), rstd);
    const Simd::V g =
        Simd::mul(Simd::load(dy + i, mask), Simd::add(Simd::load(n.weight + i, mask), offset));
    Simd::V d = Simd::mul(rstd, Simd::fnma(normal, mean_gn, Simd::sub(g, mean_g)));
    if (n.d_sum != nullptr) d = Simd::add(d, Simd::load(n.d_sum + r * c + i, mask));
    Simd::store(n.ds + r * c + i, d, mask);
  }
}

template <typename T, typename Stream>
void norm_forward_rows(bool centred, const NormForward<T, Stream>& f, std::int64_t begin,
                       std::int64_t end) {
  for (std::int64_t r = begin; r < end; ++r) {
    if (centred) {
      norm_forward_row<true>(f, r);
    } else {
      norm_forward_row<false>(f, r);
    }
  }
}

template <typename T, typename Stream>
void norm_backward_rows(bool centred, const NormBackward<T, Stream>& n, std::int64_t begin,
                        std::int64_t end, float* d_weight, float* d_bias) {
  for (std::int64_t r = begin; r < end; ++r) {
    if (centred) {
      norm_backward_row<true>(n, r, d_weight, d_bias);
    } else {
      norm_backward_row<false>(n, r, d_weight, d_bias);
    }
  }
}

}  // namespace
}  // namespace isthmus::kernels
