// SPDX-License-Identifier: Apache-2.0
// Pairs of bfloat16 in the lanes of AVX-512-BF16: vdpbf16ps adds the products of both to a float
// sum. It treats denormals as zero. Include after simd_avx512.h.
#pragma once

#include <bit>

#include "kernels/cpu/product.h"

namespace isthmus::kernels {
namespace {

inline __m256i Simd::narrow(V x) { return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)); }

struct PairProduct {
  static constexpr std::int64_t kFold = 2;
  template <typename T>
  static constexpr bool kInPlace = std::is_same_v<T, Bf16>;  // adjacent values of a row form a pair
  static constexpr bool kColumnsInPlace = false;
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
  static Simd::V across(const Bf16* row, std::int64_t ld, std::int64_t rows, Simd::Mask columns) {
    return interleave(_mm256_maskz_loadu_epi16(columns, row),
                      rows > 1 ? _mm256_maskz_loadu_epi16(columns, row + ld) : __m256i{});
  }
  static Simd::V across(const Bf16* row, std::int64_t ld, std::int64_t rows) {
    return interleave(_mm256_loadu_epi16(row), rows > 1 ? _mm256_loadu_epi16(row + ld) : __m256i{});
  }
  static Simd::V along(const float* from) {
    return as_lanes(_mm512_cvtne2ps_pbh(Simd::load(from + Simd::kWidth), Simd::load(from)));
  }
  static Simd::V along(const Bf16* from) { return _mm512_castsi512_ps(_mm512_loadu_epi16(from)); }
  static float lane(const Bf16* from, std::int64_t values) {
    const std::uint32_t high = values > 1 ? from[1].bits : 0u;
    return std::bit_cast<float>(from[0].bits | high << 16);
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
    return interleave(reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
  }
  static Simd::V interleave(__m256i low, __m256i high) {
    return interleave(_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1));
  }
  static Simd::V interleave(__m512i both) {
    const __m512i order =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return _mm512_castsi512_ps(_mm512_permutexvar_epi16(order, both));
  }
};

}  // namespace
}  // namespace isthmus::kernels
