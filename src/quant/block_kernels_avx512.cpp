// SPDX-License-Identifier: Apache-2.0
// 16 lanes as one AVX-512 register (F, BW, VL, DQ), and F16C.
#include <immintrin.h>

#include "quant/block_loops.h"
#include "quant/codec_kernels_x86.h"

namespace isthmus {
namespace {

struct Avx512 {
  using F = __m512;
  using I = __m512i;
  using M = __mmask16;

  static constexpr bool kConvertsSmall = true;

  static F load(const float* at) { return _mm512_loadu_ps(at); }
  static void store(float* at, F v) { _mm512_storeu_ps(at, v); }
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
  static F clamp(F v, float low, float high) {
    return _mm512_min_ps(_mm512_max_ps(v, _mm512_set1_ps(low)), _mm512_set1_ps(high));
  }
  static I nearest(F v) {
    return _mm512_cvt_roundps_epi32(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  static I add(I a, I b) { return _mm512_add_epi32(a, b); }
  static I sub(I a, I b) { return _mm512_sub_epi32(a, b); }
  static I bit_and(I a, I b) { return _mm512_and_si512(a, b); }
  static I bit_or(I a, I b) { return _mm512_or_si512(a, b); }
  static I min(I a, I b) { return _mm512_min_epi32(a, b); }
  static I max(I a, I b) { return _mm512_max_epi32(a, b); }
  template <int by>
  static I srl(I a) {
    return _mm512_srli_epi32(a, by);
  }
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
  // How many of the 15 borders are at most q: a search of four steps. Table k, read at the count so
  // far, holds the border that decides its bit k.
  struct SearchTables {
    alignas(64) float of[3][16];
  };
  static constexpr SearchTables make_search_tables() {
    SearchTables tables{};
    for (std::size_t k = 0; k < 3; ++k) {
      const std::size_t bit = std::size_t{1} << k;
      for (std::size_t c = 0; c + bit <= 15; c += 2 * bit) {
        tables.of[k][c] = kNf4Borders[c + bit - 1];
      }
    }
    return tables;
  }
  static I nf4(F q) {
    static constexpr SearchTables kNf4Search = make_search_tables();
    const F middle = _mm512_set1_ps(kNf4Borders[7]);
    I count = _mm512_maskz_set1_epi32(_mm512_cmp_ps_mask(q, middle, _CMP_GE_OQ), 8);
    for (const int k : {2, 1, 0}) {
      const F border = _mm512_permutexvar_ps(count, _mm512_load_ps(kNf4Search.of[k]));
      const M at_least = _mm512_cmp_ps_mask(q, border, _CMP_GE_OQ);
      count = _mm512_mask_or_epi32(count, at_least, count, _mm512_set1_epi32(1 << k));
    }
    return count;
  }
  static I add_one_where(M m, I v) { return _mm512_mask_add_epi32(v, m, v, _mm512_set1_epi32(1)); }
  // v + 1 where bit `shift` of a is set.
  template <int shift>
  static I add_odd(I v, I a) {
    return add_one_where(_mm512_test_epi32_mask(a, _mm512_set1_epi32(1 << shift)), v);
  }
  template <int to>
  static I add_sign(F q, I index) {
    const M negative = _mm512_movepi32_mask(as_int(q));
    return _mm512_mask_or_epi32(index, negative, index, _mm512_set1_epi32(1 << to));
  }
  // A float of few bits from a prescaled quotient: magnitudes saturate at `top`; from `normal` on,
  // whose code is `first`, they round to the mantissa bit `shift`; below, to whole numbers.
  template <int shift, int sign>
  static I minifloat(F q, float top, float normal, int first) {
    const I a = _mm512_min_epi32(bit_and(as_int(q), set(static_cast<int>(kAbsMask))),
                                 set(static_cast<int>(bits_of(top))));
    const int base = static_cast<int>(bits_of(normal)) - (first << shift);
    const I shifted = add(a, set((1 << (shift - 1)) - 1 - base));
    const I large = _mm512_srli_epi32(add_odd<shift>(shifted, a), shift);
    const M small = _mm512_cmplt_epi32_mask(a, set(static_cast<int>(bits_of(normal))));
    return add_sign<sign>(
        q, _mm512_mask_cvt_roundps_epi32(large, small, as_float(a),
                                         _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
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

  // Lanes 0-7 and 8-15 of the contract.
  struct Sum {
    __m512d low = _mm512_setzero_pd();
    __m512d high = _mm512_setzero_pd();
    void add(F v) {
      low = _mm512_add_pd(low, _mm512_cvtps_pd(_mm512_castps512_ps256(v)));
      high = _mm512_add_pd(high, _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1)));
    }
    void add_square(F v) {  // squares are exact, so fusing changes nothing
      const __m512d a = _mm512_cvtps_pd(_mm512_castps512_ps256(v));
      const __m512d b = _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1));
      low = _mm512_fmadd_pd(a, a, low);
      high = _mm512_fmadd_pd(b, b, high);
    }
    [[nodiscard]] double total() const {
      const __m512d eight = _mm512_add_pd(low, high);
      const __m256d four =
          _mm256_add_pd(_mm512_castpd512_pd256(eight), _mm512_extractf64x4_pd(eight, 1));
      const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
      return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
    }
  };

  // 64 codes of 8 bits in order. Packing works inside 128-bit lanes; the permutation puts fours
  // back.
  static I in_order(I mixed) {
    const I order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return _mm512_permutexvar_epi32(order, mixed);
  }
  static I bytes_of(I a, I b, I c, I d) {
    return in_order(_mm512_packus_epi16(_mm512_packus_epi32(a, b), _mm512_packus_epi32(c, d)));
  }
  template <typename G>
  static void pack(std::byte* out, I a, I b, I c, I d) {
    constexpr unsigned bits = G::kBits;
    if constexpr (bits == 1) {
      const std::uint64_t word = static_cast<std::uint64_t>(_mm512_test_epi32_mask(a, a)) |
                                 static_cast<std::uint64_t>(_mm512_test_epi32_mask(b, b)) << 16 |
                                 static_cast<std::uint64_t>(_mm512_test_epi32_mask(c, c)) << 32 |
                                 static_cast<std::uint64_t>(_mm512_test_epi32_mask(d, d)) << 48;
      std::memcpy(out, &word, sizeof word);
    } else if constexpr (G::kGrid == Grid::kInt8) {  // signed; saturates at 127
      const I mixed = _mm512_packs_epi16(_mm512_packs_epi32(a, b), _mm512_packs_epi32(c, d));
      _mm512_storeu_si512(out, in_order(mixed));
    } else if constexpr (bits == 8) {
      _mm512_storeu_si512(out, bytes_of(a, b, c, d));
    } else if constexpr (bits == 4) {  // c0 + 16 c1 in each 16 bits
      const I pairs = _mm512_maddubs_epi16(bytes_of(a, b, c, d), _mm512_set1_epi16(0x1001));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm512_cvtepi16_epi8(pairs));
    } else if constexpr (bits == 2) {
      const I pairs = _mm512_maddubs_epi16(bytes_of(a, b, c, d), _mm512_set1_epi16(0x0401));
      const I fours = _mm512_madd_epi16(pairs, _mm512_set1_epi32(0x0010'0001));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm512_cvtepi32_epi8(fours));
    } else {
      const I pairs = _mm512_maddubs_epi16(bytes_of(a, b, c, d), _mm512_set1_epi16(0x0801));
      const I fours = _mm512_madd_epi16(pairs, _mm512_set1_epi32(0x0040'0001));
      const I eights = bit_or(fours, _mm512_srli_epi64(fours, 20));
      alignas(64) std::uint64_t lane[8];
      _mm512_store_si512(lane, eights);
      for (std::size_t k = 0; k < 8; ++k) std::memcpy(out + 3 * k, &lane[k], 3);
    }
  }
  // 16 codes; reads up to 4 bytes behind them. Lanes 0-7 shift one 32-bit word, lanes 8-15 another.
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

const BlockKernels kAvx512BlockKernels = fast_kernels<Avx512>("avx512");

}  // namespace isthmus
