// SPDX-License-Identifier: Apache-2.0
// 16 lanes as two AVX2 registers, with FMA and F16C.
#include <immintrin.h>

#include <cstring>

#include "quant/cpu/block_loops.h"
#include "quant/cpu/codec_kernels_x86.h"
#include "quant/cpu/lane_sums_avx2.h"

namespace isthmus {
namespace {

struct Avx2 {
  struct F {
    __m256 a, b;
  };
  struct I {
    __m256i a, b;
  };
  using M = I;

  static F load(const float* at) { return {_mm256_loadu_ps(at), _mm256_loadu_ps(at + 8)}; }
  // The first `count` floats, if there are fewer than 16; zeros follow.
  static F load_some(const float* at, std::size_t count) {
    const I mask = first(count);
    return {_mm256_maskload_ps(at, mask.a), _mm256_maskload_ps(at + 8, mask.b)};
  }
  static void store(float* at, F v) {
    _mm256_storeu_ps(at, v.a);
    _mm256_storeu_ps(at + 8, v.b);
  }
  static void store_some(float* at, F v, std::size_t count) {
    const I mask = first(count);
    _mm256_maskstore_ps(at, mask.a, v.a);
    _mm256_maskstore_ps(at + 8, mask.b, v.b);
  }
  static I first(std::size_t count) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i all = _mm256_set1_epi32(count < 16 ? static_cast<int>(count) : 16);
    return {_mm256_cmpgt_epi32(all, lane),
            _mm256_cmpgt_epi32(_mm256_sub_epi32(all, _mm256_set1_epi32(8)), lane)};
  }
  static F set_float(float v) { return {_mm256_set1_ps(v), _mm256_set1_ps(v)}; }
  static F broadcast(const float* at) { return set_float(*at); }
  static I set(int v) { return {_mm256_set1_epi32(v), _mm256_set1_epi32(v)}; }
  static I as_int(F v) { return {_mm256_castps_si256(v.a), _mm256_castps_si256(v.b)}; }
  static F as_float(I v) { return {_mm256_castsi256_ps(v.a), _mm256_castsi256_ps(v.b)}; }
  static F to_float(I v) { return {_mm256_cvtepi32_ps(v.a), _mm256_cvtepi32_ps(v.b)}; }
  static F mul(F x, F y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
  static F div(F x, F y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
  static bool any(I v) {
    const __m256i both = _mm256_or_si256(v.a, v.b);
    return _mm256_testz_si256(both, both) == 0;
  }
  static F add_float(F x, F y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
  static F sub_float(F x, F y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
  static F fmadd(F x, F y, F z) {
    return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
  }
  static F fnmadd(F x, F y, F z) {
    return {_mm256_fnmadd_ps(x.a, y.a, z.a), _mm256_fnmadd_ps(x.b, y.b, z.b)};
  }
  static F min_float(F x, F y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
  static F max_float(F x, F y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
  static F clamp(F v, float low, float high) {
    return min_float(max_float(v, set_float(low)), set_float(high));
  }
  static I nearest(F v) {  // the rounding mode is to nearest; nothing here changes it
    return {_mm256_cvtps_epi32(v.a), _mm256_cvtps_epi32(v.b)};
  }
  static I add(I x, I y) { return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)}; }
  static I sub(I x, I y) { return {_mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b)}; }
  static I bit_and(I x, I y) { return {_mm256_and_si256(x.a, y.a), _mm256_and_si256(x.b, y.b)}; }
  static I bit_or(I x, I y) { return {_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)}; }
  static I min(I x, I y) { return {_mm256_min_epi32(x.a, y.a), _mm256_min_epi32(x.b, y.b)}; }
  static I max(I x, I y) { return {_mm256_max_epi32(x.a, y.a), _mm256_max_epi32(x.b, y.b)}; }
  template <int by>
  static I srl(I v) {
    return {_mm256_srli_epi32(v.a, by), _mm256_srli_epi32(v.b, by)};
  }
  template <int by>
  static I sll(I v) {
    return {_mm256_slli_epi32(v.a, by), _mm256_slli_epi32(v.b, by)};
  }
  static M greater(I x, I y) {
    return {_mm256_cmpgt_epi32(x.a, y.a), _mm256_cmpgt_epi32(x.b, y.b)};
  }
  static M greater_float(F x, F y) {
    return as_int({_mm256_cmp_ps(x.a, y.a, _CMP_GT_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_GT_OQ)});
  }
  static M at_least(F x, F y) {
    return as_int({_mm256_cmp_ps(x.a, y.a, _CMP_GE_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_GE_OQ)});
  }
  static M at_least_zero(F x) { return at_least(x, set_float(0)); }
  static I select(M m, I yes, I no) {
    return {_mm256_blendv_epi8(no.a, yes.a, m.a), _mm256_blendv_epi8(no.b, yes.b, m.b)};
  }
  static I sign_extend_byte(I v) {
    const I up = sll<24>(v);
    return {_mm256_srai_epi32(up.a, 24), _mm256_srai_epi32(up.b, 24)};
  }
  static __m256 from_half(__m256i halves) {
    return _mm256_cvtph_ps(
        _mm_packus_epi32(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1)));
  }
  static F from_half(I halves) { return {from_half(halves.a), from_half(halves.b)}; }
  static __m256 lookup(__m256 low, __m256 high, __m256i codes) {
    const __m256 bit3 = _mm256_castsi256_ps(_mm256_slli_epi32(codes, 28));
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(low, codes),
                            _mm256_permutevar8x32_ps(high, codes), bit3);
  }
  static F lookup(const float* table, I codes) {
    const __m256 low = _mm256_loadu_ps(table);
    const __m256 high = _mm256_loadu_ps(table + 8);
    return {lookup(low, high, codes.a), lookup(low, high, codes.b)};
  }
  static I nf4(F q) {
    I count = set(0);
    for (const float border : kNf4Borders) count = sub(count, at_least(q, set_float(border)));
    return count;
  }
  static F add_where(M m, F sum, F v) { return add_float(sum, as_float(bit_and(as_int(v), m))); }
  static I add_one_where(M m, I v) { return sub(v, m); }
  // v + 1 where bit `shift` of a is set.
  template <int shift>
  static I add_odd(I v, I a) {
    return add(v, bit_and(srl<shift>(a), set(1)));
  }
  template <int to>
  static I add_sign(F q, I index) {
    return bit_or(index, bit_and(srl<31 - to>(as_int(q)), set(1 << to)));
  }
  static std::uint32_t reduce_max(I v) {
    alignas(32) std::uint32_t lane[8];
    _mm256_store_si256(reinterpret_cast<__m256i*>(lane), _mm256_max_epi32(v.a, v.b));
    std::uint32_t most = lane[0];
    for (const std::uint32_t value : lane) most = value > most ? value : most;
    return most;
  }
  static void reduce_max_4(const I* v, std::uint32_t* out) {
    for (std::size_t b = 0; b < 4; ++b) out[b] = reduce_max(v[b]);
  }
  static std::uint32_t reduce_add(I v) {
    alignas(32) std::uint32_t lane[8];
    _mm256_store_si256(reinterpret_cast<__m256i*>(lane), _mm256_add_epi32(v.a, v.b));
    std::uint32_t sum = 0;
    for (const std::uint32_t value : lane) sum += value;
    return sum;
  }
  static float reduce_min_float(F v) {
    alignas(32) float lane[8];
    _mm256_store_ps(lane, _mm256_min_ps(v.a, v.b));
    float least = lane[0];
    for (const float value : lane) least = value < least ? value : least;
    return least;
  }
  static float reduce_max_float(F v) {
    alignas(32) float lane[8];
    _mm256_store_ps(lane, _mm256_max_ps(v.a, v.b));
    float most = lane[0];
    for (const float value : lane) most = value > most ? value : most;
    return most;
  }

  using Sum = LaneSums;

  // 32 codes of 8 bits in order. Packing works inside 128-bit halves; the permutation puts the
  // groups of four back.
  static __m256i in_order(__m256i mixed) {
    return _mm256_permutevar8x32_epi32(mixed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  }
  static __m256i bytes_of(I x, I y) {
    return in_order(
        _mm256_packus_epi16(_mm256_packus_epi32(x.a, x.b), _mm256_packus_epi32(y.a, y.b)));
  }
  template <typename G>
  static void pack_32(std::byte* out, I x, I y) {
    constexpr unsigned bits = G::kBits;
    if constexpr (bits == 1) {
      const auto nonzero = [](__m256i v) {
        return static_cast<std::uint32_t>(
            _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_slli_epi32(v, 31))));
      };
      const std::uint32_t word =
          nonzero(x.a) | nonzero(x.b) << 8 | nonzero(y.a) << 16 | nonzero(y.b) << 24;
      std::memcpy(out, &word, sizeof word);
      return;
    } else if constexpr (G::kGrid == Grid::kInt8) {  // signed; saturates at 127
      const __m256i mixed =
          _mm256_packs_epi16(_mm256_packs_epi32(x.a, x.b), _mm256_packs_epi32(y.a, y.b));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), in_order(mixed));
    } else if constexpr (bits == 8) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), bytes_of(x, y));
    } else if constexpr (bits == 4) {  // c0 + 16 c1 in each 16 bits
      const __m256i pairs = _mm256_maddubs_epi16(bytes_of(x, y), _mm256_set1_epi16(0x1001));
      const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi16(pairs, pairs), 0x08);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm256_castsi256_si128(packed));
    } else {
      constexpr int b = static_cast<int>(bits);
      const __m256i pairs =
          _mm256_maddubs_epi16(bytes_of(x, y), _mm256_set1_epi16((1 << (8 + b)) | 1));
      const __m256i fours = _mm256_madd_epi16(pairs, _mm256_set1_epi32((1 << (16 + 2 * b)) | 1));
      if constexpr (bits == 2) {
        const __m256i words = _mm256_packus_epi32(fours, fours);
        const __m256i packed = _mm256_packus_epi16(words, words);
        const int low = _mm256_extract_epi32(packed, 0);
        const int high = _mm256_extract_epi32(packed, 4);
        std::memcpy(out, &low, sizeof low);
        std::memcpy(out + 4, &high, sizeof high);
      } else {
        alignas(32) std::uint64_t lane[4];
        _mm256_store_si256(reinterpret_cast<__m256i*>(lane),
                           _mm256_or_si256(fours, _mm256_srli_epi64(fours, 20)));
        for (std::size_t k = 0; k < 4; ++k) std::memcpy(out + 3 * k, &lane[k], 3);
      }
    }
  }
  template <typename G>
  static void pack(std::byte* out, I a, I b, I c, I d) {
    pack_32<G>(out, a, b);
    pack_32<G>(out + 4 * G::kBits, c, d);
  }
  // Ternary codes: 0 where not above, else 1, and 2 more for a minus.
  using Ternary = I;
  static Ternary ternary(F v, M above) { return bit_and(add_sign<1>(v, set(1)), above); }
  static void pack_ternary(std::byte* out, const Ternary* four) {
    pack<TernaryGrid>(out, four[0], four[1], four[2], four[3]);
  }
  // 16 codes; reads up to 4 bytes behind them. Each half shifts one 32-bit word.
  template <unsigned bits>
  static I unpack(const std::byte* from) {
    if constexpr (bits == 8) {
      const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
      return {_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))};
    } else {
      int low = 0;
      int high = 0;
      std::memcpy(&low, from, sizeof low);
      std::memcpy(&high, from + bits, sizeof high);
      constexpr int b = static_cast<int>(bits);
      const __m256i shifts = _mm256_setr_epi32(0, b, 2 * b, 3 * b, 4 * b, 5 * b, 6 * b, 7 * b);
      return bit_and({_mm256_srlv_epi32(_mm256_set1_epi32(low), shifts),
                      _mm256_srlv_epi32(_mm256_set1_epi32(high), shifts)},
                     set((1 << b) - 1));
    }
  }
};

}  // namespace

const BlockKernels kAvx2BlockKernels = fast_kernels<Avx2>("avx2");

}  // namespace isthmus
