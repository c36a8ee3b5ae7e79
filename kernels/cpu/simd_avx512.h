// SPDX-License-Identifier: Apache-2.0
// Sixteen floats in a register: the vector type of the fast kernels' templates. simd_avx2.h and
// simd_portable.h define the same names. Include only from files compiled for this instruction set;
// the unnamed namespace keeps every template instance private to that file, so that the linker
// cannot use such code on a machine without the instructions.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/bf16.h"

namespace isthmus::kernels {
namespace {

struct Simd {
  using V = __m512;
  using Mask = __mmask16;
  static constexpr int kWidth = 16;
  static constexpr int kTileRows = 6;     // 6 x 4 accumulators, 4 of B and a broadcast: 29 of 32
  static constexpr int kTileVectors = 4;  // vectors in a row of a tile

  static V zero() { return _mm512_setzero_ps(); }
  static V set(float x) { return _mm512_set1_ps(x); }
  static V load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, V x) { _mm512_storeu_ps(p, x); }
  /// Lanes below n (0 <= n <= 16; a larger n means all of them).
  static Mask first(std::int64_t n) {
    return static_cast<Mask>(n >= 16 ? 0xffff : (1u << static_cast<unsigned>(n)) - 1u);
  }
  static V load(const float* p, Mask m) { return _mm512_maskz_loadu_ps(m, p); }
  static void store(float* p, V x, Mask m) { _mm512_mask_storeu_ps(p, m, x); }
  /// Lanes whose bit is set.
  static Mask bits(std::uint32_t lanes) { return static_cast<Mask>(lanes); }
  /// Bf16 in memory, floats in the register.
  static V load(const Bf16* p) {
    return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static V load(const Bf16* p, Mask m) { return widen(_mm256_maskz_loadu_epi16(m, p)); }
  static void store(Bf16* p, V x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow(x)); }
  static void store(Bf16* p, V x, Mask m) { _mm256_mask_storeu_epi16(p, m, narrow(x)); }
  static V select(Mask m, V yes, V no) { return _mm512_mask_blend_ps(m, no, yes); }

  /// Lanes in which x < y; none where either is NaN.
  static Mask below(V x, V y) { return _mm512_cmp_ps_mask(x, y, _CMP_LT_OQ); }

  static V add(V x, V y) { return _mm512_add_ps(x, y); }
  static V sub(V x, V y) { return _mm512_sub_ps(x, y); }
  static V mul(V x, V y) { return _mm512_mul_ps(x, y); }
  static V div(V x, V y) { return _mm512_div_ps(x, y); }
  /// 1 / x for x in [1, 1e36]: a 14-bit estimate and one Newton step, within 1 unit in the last
  /// place; a division of 16 lanes takes three times as long.
  static V reciprocal(V x) {
    const V estimate = _mm512_rcp14_ps(x);
    return fma(estimate, fnma(x, estimate, set(1.0f)), estimate);
  }
  static V max(V x, V y) { return _mm512_max_ps(x, y); }
  static V min(V x, V y) { return _mm512_min_ps(x, y); }
  static V sqrt(V x) { return _mm512_sqrt_ps(x); }
  /// x y + z and z - x y in one rounding.
  static V fma(V x, V y, V z) { return _mm512_fmadd_ps(x, y, z); }
  static V fnma(V x, V y, V z) { return _mm512_fnmadd_ps(x, y, z); }
  static V round(V x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT); }
  /// x 2^n for whole n.
  static V scale2(V x, V n) { return _mm512_scalef_ps(x, n); }
  /// To the nearest bfloat16, ties to even; NaN stays NaN, a quiet one.
  static V round_bf16(V x) {
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const V rounded =
        _mm512_castsi512_ps(_mm512_and_si512(up, _mm512_set1_epi32(static_cast<int>(0xffff0000))));
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), rounded, add(x, x));
  }
  static float sum(V x) { return _mm512_reduce_add_ps(x); }
  static float largest(V x) { return _mm512_reduce_max_ps(x); }

 private:
  static V widen(__m256i x) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
  }
  /// To bfloat16; fast_avx512.cpp and product_avx512_bf16.h define it with their instructions.
  static __m256i narrow(V x);
};

/// Eight 64-bit integers.
struct Longs {
  using V = __m512i;
  static constexpr int kWidth = 8;
  static V set(std::uint64_t x) { return _mm512_set1_epi64(static_cast<long long>(x)); }
  /// x, x + 1, ...
  static V count(std::uint64_t x) {
    return _mm512_add_epi64(set(x), _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static V load(const std::uint64_t* p) { return _mm512_loadu_si512(p); }
  static void store(std::uint64_t* p, V x) { _mm512_storeu_si512(p, x); }
  static V bit_xor(V x, V y, V z) { return _mm512_ternarylogic_epi64(x, y, z, 0x96); }
  /// Product of the low halves; high half of each lane.
  static V mul_low(V x, V y) { return _mm512_mul_epu32(x, y); }
  static V high(V x) { return _mm512_srli_epi64(x, 32); }
  /// The low halves of x and y as one lane, x below.
  static V join(V x, V y) { return _mm512_mask_blend_epi32(0xaaaa, x, _mm512_slli_epi64(y, 32)); }
  /// x0 y0 x1 y1 ...
  static void store_by_turns(std::uint32_t* p, V x, V y) {
    const V low = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11);
    const V high = _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15);
    _mm512_storeu_si512(p, _mm512_permutex2var_epi64(x, low, y));
    _mm512_storeu_si512(p + 16, _mm512_permutex2var_epi64(x, high, y));
  }
  /// x + y in the lanes whose bit is set, x elsewhere; higher bits do not matter.
  static V add_where(std::uint32_t lanes, V x, V y) {
    return _mm512_mask_add_epi64(x, static_cast<__mmask8>(lanes), x, y);
  }
};

/// 16 x 16 block transposed: to[i * to_stride + j] = lane i of row(j).
template <typename Row>
inline void transpose_block(const Row& row, float* to, std::int64_t to_stride) {
  __m512 r[16];
  __m512 t[16];
  for (int i = 0; i < 16; ++i) r[i] = row(i);
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    const __m512d a = _mm512_castps_pd(t[i]);
    const __m512d b = _mm512_castps_pd(t[i + 1]);
    const __m512d c = _mm512_castps_pd(t[i + 2]);
    const __m512d d = _mm512_castps_pd(t[i + 3]);
    r[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
    r[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
    r[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
    r[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
  }
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xdd);
  }
  for (int i = 0; i < 8; ++i) {
    _mm512_storeu_ps(to + i * to_stride, _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88));
    _mm512_storeu_ps(to + (i + 8) * to_stride, _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd));
  }
}

}  // namespace
}  // namespace isthmus::kernels
