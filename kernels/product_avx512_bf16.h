// SPDX-License-Identifier: Apache-2.0
// Pairs of bfloat16 in the lanes of AVX-512-BF16: vdpbf16ps adds the products of both to a float
// sum. It takes denormals for zero. Include after simd_avx512.h.
#pragma once

#include "kernels/product.h"

namespace isthmus::kernels {
namespace {

struct PairProduct {
  static constexpr std::int64_t kFold = 2;
  static constexpr bool kPacksA = true;
  static Simd::V multiply_add(Simd::V a, Simd::V b, Simd::V sum) {
    return _mm512_dpbf16_ps(sum, as_pairs(a), as_pairs(b));
  }
  static Simd::V across(const float* row, std::int64_t ld, std::int64_t rows, Simd::Mask columns) {
    return interleave(Simd::load(row, columns),
                      rows > 1 ? Simd::load(row + ld, columns) : Simd::zero());
  }
  static Simd::V across(const float* row, std::int64_t ld, std::int64_t rows) {
    return interleave(Simd::load(row), rows > 1 ? Simd::load(row + ld) : Simd::zero());
  }
  static Simd::V along(const float* from) {
    return as_lanes(_mm512_cvtne2ps_pbh(Simd::load(from + Simd::kWidth), Simd::load(from)));
  }
  static float lane(const float* from, std::int64_t values) {
    return _mm512_cvtss_f32(
        as_lanes(_mm512_cvtne2ps_pbh(Simd::zero(), Simd::load(from, Simd::first(values)))));
  }

 private:
  static __m512bh as_pairs(Simd::V x) { return reinterpret_cast<__m512bh>(x); }
  static Simd::V as_lanes(__m512bh x) { return reinterpret_cast<Simd::V>(x); }
  /// Lane j: (low[j], high[j]).
  static Simd::V interleave(Simd::V low, Simd::V high) {
    const __m512i order =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    const __m512i both = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
    return _mm512_castsi512_ps(_mm512_permutexvar_epi16(order, both));
  }
};

}  // namespace
}  // namespace isthmus::kernels
