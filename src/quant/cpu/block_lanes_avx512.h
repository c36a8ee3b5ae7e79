// SPDX-License-Identifier: Apache-2.0
// 16 lanes as one AVX-512 register (F, BW, VL, DQ), and F16C: the V of block_loops.h.
#pragma once

#include <immintrin.h>

#include <cstring>

#include "quant/cpu/lane_sums_avx2.h"
#include "quant/math/block_grids.h"

namespace isthmus {
namespace {

struct Avx512 {
  using F = __m512;
  using I = __m512i;
  using M = __mmask16;

  static F load(const float* at) { return _mm512_loadu_ps(at); }
  // The first `count` floats if fewer than 16 are left, then zeros.
  static F load_some(const float* at, std::size_t count) {
    return count < 16 ? _mm512_maskz_loadu_ps(static_cast<M>((1u << count) - 1u), at) : load(at);
  }
  static void store(float* at, F v) { _mm512_storeu_ps(at, v); }
  static void store_some(float* at, F v, std::size_t count) {
    _mm512_mask_storeu_ps(at, static_cast<M>((1u << count) - 1u), v);
  }
  static F broadcast(const float* at) { return _mm512_set1_ps(*at); }
  static F set_float(float v) { return _mm512_set1_ps(v); }
  static I set(int v) { return _mm512_set1_epi32(v); }
  static I as_int(F v) { return _mm512_castps_si512(v); }
  static F as_float(I v) { return _mm512_castsi512_ps(v); }
  static F to_float(I v) { return _mm512_cvtepi32_ps(v); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F div(F a, F b) { return _mm512_div_ps(a, b); }
  static bool any(I v) { return _mm512_test_epi32_mask(v, v) != 0; }
  static F add_float(F a, F b) { return _mm512_add_ps(a, b); }
  static F sub_float(F a, F b) { return _mm512_sub_ps(a, b); }
  static F fmadd(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F fnmadd(F a, F b, F c) { return _mm512_fnmadd_ps(a, b, c); }
  static F min_float(F a, F b) { return _mm512_min_ps(a, b); }
  static F max_float(F a, F b) { return _mm512_max_ps(a, b); }
  static I nearest(F v) {
    return _mm512_cvt_roundps_epi32(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  static I add(I a, I b) { return _mm512_add_epi32(a, b); }
  static I bit_and(I a, I b) { return _mm512_and_si512(a, b); }
  static I bit_or(I a, I b) { return _mm512_or_si512(a, b); }
  static I max(I a, I b) { return _mm512_max_epi32(a, b); }
  template <int by>
  static I sll(I a) {
    return _mm512_slli_epi32(a, by);
  }
  static M greater(I a, I b) { return _mm512_cmpgt_epi32_mask(a, b); }
  static M greater_float(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
  static M at_least_zero(F a) { return _mm512_cmp_ps_mask(a, _mm512_setzero_ps(), _CMP_GE_OQ); }
  static I select(M m, I yes, I no) { return _mm512_mask_blend_epi32(m, no, yes); }
  static I sign_extend_byte(I a) { return _mm512_srai_epi32(_mm512_slli_epi32(a, 24), 24); }
  static F from_half(I halves) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(halves)); }
  static F lookup(const float* table, I codes) {
    return _mm512_permutexvar_ps(codes, _mm512_loadu_ps(table));
  }
  static F add_where(M m, F sum, F v) { return _mm512_mask_add_ps(sum, m, sum, v); }
  static I add_one_where(M m, I v) { return _mm512_mask_add_epi32(v, m, v, _mm512_set1_epi32(1)); }
  static std::uint32_t reduce_max(I v) {
    return static_cast<std::uint32_t>(_mm512_reduce_max_epi32(v));
  }
  static void reduce_max_4(const I* v, std::uint32_t* out) {
    const auto pairs = [](I a, I b) {
      return _mm512_max_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    };
    const I ab = pairs(v[0], v[1]);  // a b a b in each quarter
    const I cd = pairs(v[2], v[3]);
    const I quarters =
        _mm512_max_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
    const __m256i halves =
        _mm256_max_epi32(_mm512_castsi512_si256(quarters), _mm512_extracti64x4_epi64(quarters, 1));
    const __m128i four =
        _mm_max_epi32(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), four);
  }
  static std::uint32_t reduce_add(I v) {
    return static_cast<std::uint32_t>(_mm512_reduce_add_epi32(v));
  }
  static float reduce_min_float(F v) { return _mm512_reduce_min_ps(v); }
  static float reduce_max_float(F v) { return _mm512_reduce_max_ps(v); }

  using Sum = LaneSums;

  // 64 codes of 8 bits in order. Packing works inside 128-bit lanes; the permutation restores the
  // order of groups of four.
  static I in_order(I mixed) {
    const I order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return _mm512_permutexvar_epi32(order, mixed);
  }
  // 64 codes, one a byte, as a bit string.
  template <unsigned bits>
  static void store_codes(std::byte* out, I bytes) {
    if constexpr (bits == 8) {
      _mm512_storeu_si512(out, bytes);
    } else if constexpr (bits == 4) {  // c0 + 16 c1 in each 16 bits
      const I pairs = _mm512_maddubs_epi16(bytes, _mm512_set1_epi16(0x1001));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm512_cvtepi16_epi8(pairs));
    } else if constexpr (bits == 2) {
      const I pairs = _mm512_maddubs_epi16(bytes, _mm512_set1_epi16(0x0401));
      const I fours = _mm512_madd_epi16(pairs, _mm512_set1_epi32(0x0010'0001));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm512_cvtepi32_epi8(fours));
    } else {
      static_assert(bits == 3);
      const I pairs = _mm512_maddubs_epi16(bytes, _mm512_set1_epi16(0x0801));
      const I fours = _mm512_madd_epi16(pairs, _mm512_set1_epi32(0x0040'0001));
      const I eights = bit_or(fours, _mm512_srli_epi64(fours, 20));  // 24 bits in each 64
      // Six bytes to the front of each quarter, then their words together.
      const __m128i front =
          _mm_setr_epi8(0, 1, 2, 8, 9, 10, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
      const I sixes = _mm512_shuffle_epi8(eights, _mm512_broadcast_i32x4(front));
      const __m512i words = _mm512_zextsi256_si512(
          _mm256_setr_epi16(0, 1, 2, 8, 9, 10, 16, 17, 18, 24, 25, 26, 3, 3, 3, 3));
      const __m256i all = _mm512_castsi512_si256(_mm512_permutexvar_epi16(words, sixes));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm256_castsi256_si128(all));
      _mm_storel_epi64(reinterpret_cast<__m128i*>(out + 16), _mm256_extracti128_si256(all, 1));
    }
  }
  static __mmask64 join(M a, M b, M c, M d) {
    return _mm512_kunpackd(_mm512_kunpackw(d, c), _mm512_kunpackw(b, a));
  }
  // Ternary codes: 0 where not above, else 1, and 2 more for a minus.
  struct Ternary {
    M above, minus;
  };
  static Ternary ternary(F v, M above) {
    const I sign = set(static_cast<int>(0x8000'0000));
    return {above, _mm512_mask_test_epi32_mask(above, as_int(v), sign)};
  }
  static void pack_ternary(std::byte* out, const Ternary* four) {
    const __mmask64 above = join(four[0].above, four[1].above, four[2].above, four[3].above);
    const __mmask64 minus = join(four[0].minus, four[1].minus, four[2].minus, four[3].minus);
    store_codes<2>(out, bit_or(_mm512_maskz_set1_epi8(above, 1), _mm512_maskz_set1_epi8(minus, 2)));
  }
  // 16 codes; reads up to 4 bytes beyond them. Lanes 0-7 shift one 32-bit word, lanes 8-15 another.
  template <unsigned bits>
  static I unpack(const std::byte* from) {
    if constexpr (bits == 8) {
      return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    } else {
      int low = 0;
      int high = 0;
      std::memcpy(&low, from, sizeof low);
      std::memcpy(&high, from + bits, sizeof high);
      constexpr int b = static_cast<int>(bits);
      const __m256i shifts = _mm256_setr_epi32(0, b, 2 * b, 3 * b, 4 * b, 5 * b, 6 * b, 7 * b);
      const I words = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_set1_epi32(low)),
                                         _mm256_set1_epi32(high), 1);
      const I by = _mm512_inserti64x4(_mm512_castsi256_si512(shifts), shifts, 1);
      return _mm512_and_si512(_mm512_srlv_epi32(words, by), _mm512_set1_epi32((1 << b) - 1));
    }
  }
};

}  // namespace
}  // namespace isthmus
