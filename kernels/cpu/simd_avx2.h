// SPDX-License-Identifier: Apache-2.0
// Eight floats in a register; the names are explained in simd_avx512.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/bf16.h"

namespace isthmus::kernels {
namespace {

struct Simd {
  using V = __m256;
  using Mask = __m256i;
  static constexpr int kWidth = 8;
  static constexpr int kTileRows = 6;  // 6 x 2 accumulators, 2 of B and a broadcast: 15 of 16
  static constexpr int kTileVectors = 2;

  static V zero() { return _mm256_setzero_ps(); }
  static V set(float x) { return _mm256_set1_ps(x); }
  static V load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, V x) { _mm256_storeu_ps(p, x); }
  static Mask first(std::int64_t n) {
    const int bound = n >= 8 ? 8 : static_cast<int>(n);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(bound), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static V load(const float* p, Mask m) { return _mm256_maskload_ps(p, m); }
  static void store(float* p, V x, Mask m) { _mm256_maskstore_ps(p, m, x); }
  static Mask bits(std::uint32_t lanes) {
    const __m256i one = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    return _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(static_cast<int>(lanes)), one),
                              one);
  }
  static V load(const Bf16* p) {
    return widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static void store(Bf16* p, V x) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrow(x)); }
  // There are no masked moves of 16 bits; masks are of the first lanes, nearly always of all.
  static V load(const Bf16* p, Mask m) {
    const int lanes = lanes_of(m);
    if (lanes == kWidth) return load(p);
    Bf16 some[kWidth] = {};
    for (int i = 0; i < lanes; ++i) some[i] = p[i];
    return load(some);
  }
  static void store(Bf16* p, V x, Mask m) {
    const int lanes = lanes_of(m);
    if (lanes == kWidth) return store(p, x);
    Bf16 some[kWidth];
    store(some, x);
    for (int i = 0; i < lanes; ++i) p[i] = some[i];
  }
  static V select(Mask m, V yes, V no) { return _mm256_blendv_ps(no, yes, _mm256_castsi256_ps(m)); }
  static Mask below(V x, V y) { return _mm256_castps_si256(_mm256_cmp_ps(x, y, _CMP_LT_OQ)); }

  static V add(V x, V y) { return _mm256_add_ps(x, y); }
  static V sub(V x, V y) { return _mm256_sub_ps(x, y); }
  static V mul(V x, V y) { return _mm256_mul_ps(x, y); }
  static V div(V x, V y) { return _mm256_div_ps(x, y); }
  static V reciprocal(V x) { return div(set(1.0f), x); }
  static V max(V x, V y) { return _mm256_max_ps(x, y); }
  static V min(V x, V y) { return _mm256_min_ps(x, y); }
  static V sqrt(V x) { return _mm256_sqrt_ps(x); }
  static V fma(V x, V y, V z) { return _mm256_fmadd_ps(x, y, z); }
  static V fnma(V x, V y, V z) { return _mm256_fnmadd_ps(x, y, z); }
  static V round(V x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static V scale2(V x, V n) {
    // In two halves, so that 2^n below the smallest normal number still rounds to zero gradually.
    const __m256i whole = _mm256_cvtps_epi32(n);
    const __m256i half = _mm256_srai_epi32(whole, 1);
    const __m256i rest = _mm256_sub_epi32(whole, half);
    const __m256i bias = _mm256_set1_epi32(127);
    const V low = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
    const V high = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23));
    return mul(mul(x, low), high);
  }
  static V round_bf16(V x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const V rounded =
        _mm256_castsi256_ps(_mm256_and_si256(up, _mm256_set1_epi32(static_cast<int>(0xffff0000))));
    return _mm256_blendv_ps(rounded, add(x, x), _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  }
  static float sum(V x) {
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }
  static float largest(V x) {
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
  }

 private:
  static int lanes_of(Mask m) {
    return __builtin_popcount(static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(m))));
  }
  static V widen(__m128i x) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
  }
  static __m128i narrow(V x) {
    const __m256i upper = _mm256_srli_epi32(_mm256_castps_si256(round_bf16(x)), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(upper), _mm256_extracti128_si256(upper, 1));
  }
};

struct Longs {
  using V = __m256i;
  static constexpr int kWidth = 4;
  static V set(std::uint64_t x) { return _mm256_set1_epi64x(static_cast<long long>(x)); }
  static V count(std::uint64_t x) {
    return _mm256_add_epi64(set(x), _mm256_setr_epi64x(0, 1, 2, 3));
  }
  static V load(const std::uint64_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static void store(std::uint64_t* p, V x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x);
  }
  static V bit_xor(V x, V y, V z) { return _mm256_xor_si256(_mm256_xor_si256(x, y), z); }
  static V mul_low(V x, V y) { return _mm256_mul_epu32(x, y); }
  static V high(V x) { return _mm256_srli_epi64(x, 32); }
  static V join(V x, V y) { return _mm256_blend_epi32(x, _mm256_slli_epi64(y, 32), 0xaa); }
  static void store_by_turns(std::uint32_t* p, V x, V y) {
    const V even = _mm256_unpacklo_epi64(x, y);
    const V odd = _mm256_unpackhi_epi64(x, y);
    auto* const to = reinterpret_cast<__m256i*>(p);
    _mm256_storeu_si256(to, _mm256_permute2x128_si256(even, odd, 0x20));
    _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(even, odd, 0x31));
  }
  static V add_where(std::uint32_t lanes, V x, V y) {
    const __m256i one = _mm256_setr_epi64x(1, 2, 4, 8);
    const __m256i set = _mm256_cmpeq_epi64(_mm256_and_si256(_mm256_set1_epi64x(lanes), one), one);
    return _mm256_add_epi64(x, _mm256_and_si256(y, set));
  }
};

/// 8 x 8 block transposed: to[i * to_stride + j] = from[j * from_stride + i].
template <typename Row>
inline void transpose_block(const Row& row, float* to, std::int64_t to_stride) {
  __m256 r[8];
  __m256 t[8];
  for (int i = 0; i < 8; ++i) r[i] = row(i);
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
    r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
  for (int i = 0; i < 4; ++i) {
    _mm256_storeu_ps(to + i * to_stride, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
    _mm256_storeu_ps(to + (i + 4) * to_stride, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
  }
}

}  // namespace
}  // namespace isthmus::kernels
