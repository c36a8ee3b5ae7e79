// SPDX-License-Identifier: Apache-2.0
// AVX-512 loops, 16 values at a time; tails use masks, so there is no scalar remainder.
// Per value: encode reads 4 bytes and writes 2; decode the reverse.
#include <immintrin.h>

#include "quant/cpu/codec_kernels_x86.h"
#include "quant/cpu/select_top_loops.h"
#include "quant/math/codec_math.h"

namespace isthmus {
namespace {

constexpr std::size_t kLanes = 16;
constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;

// body(i, mask) for each group of 16; the compiler sees that all but the last mask are full.
template <typename Body>
void for_each_vector(std::size_t n, const Body& body) {
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i, __mmask16{0xFFFF});
  if (i < n) body(i, static_cast<__mmask16>((1u << (n - i)) - 1u));
}

__m256i bf16_codes(__m512 x) {
  const __m512i u = _mm512_castps_si512(x);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
  const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  const __m512i chosen = _mm512_mask_or_epi32(rounded, nan, u, _mm512_set1_epi32(0x0040'0000));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(chosen, 16));
}
__m512 bf16_values(__m256i codes) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(codes), 16));
}
__m256i fp16_codes(__m512 x) { return _mm512_cvtps_ph(x, kNearest); }
__m512 fp16_values(__m256i codes) { return _mm512_cvtph_ps(codes); }

template <__m256i (*codes)(__m512)>
void half_encode(const float* x, std::size_t n, std::byte* out) {
  for_each_vector(n, [=](std::size_t i, __mmask16 mask) {
    _mm256_mask_storeu_epi16(out + 2 * i, mask, codes(_mm512_maskz_loadu_ps(mask, x + i)));
  });
}
template <__m512 (*values)(__m256i)>
void half_decode(const std::byte* bytes, std::size_t n, float* out) {
  for_each_vector(n, [=](std::size_t i, __mmask16 mask) {
    _mm512_mask_storeu_ps(out + i, mask, values(_mm256_maskz_loadu_epi16(mask, bytes + 2 * i)));
  });
}
template <__m512 (*values)(__m256i)>
void half_decode_add(const std::byte* bytes, std::size_t n, float* sum) {
  for_each_vector(n, [=](std::size_t i, __mmask16 mask) {
    const __m512 value = values(_mm256_maskz_loadu_epi16(mask, bytes + 2 * i));
    const __m512 total = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, sum + i), value);
    _mm512_mask_storeu_ps(sum + i, mask, total);
  });
}

std::uint32_t largest_magnitude_bits(const float* x, std::size_t n) {
  const __m512i abs = _mm512_set1_epi32(static_cast<int>(kAbsMask));
  __m512i largest = _mm512_setzero_si512();
  for_each_vector(n, [&](std::size_t i, __mmask16 mask) {
    const __m512i u = _mm512_maskz_loadu_epi32(mask, x + i);
    largest = _mm512_max_epu32(largest, _mm512_and_si512(u, abs));
  });
  return _mm512_reduce_max_epu32(largest);
}

struct SelectAvx512 {
  static std::int32_t magnitudes(const float* x, std::size_t n, std::int32_t* bits) {
    const __m512i abs = _mm512_set1_epi32(static_cast<int>(kAbsMask));
    __m512i most = _mm512_setzero_si512();
    for_each_vector(n, [&](std::size_t i, __mmask16 mask) {
      const __m512i a = _mm512_and_si512(_mm512_maskz_loadu_epi32(mask, x + i), abs);
      const __m512i padded = _mm512_mask_mov_epi32(_mm512_set1_epi32(-1), mask, a);
      most = _mm512_max_epi32(most, padded);
      _mm512_store_si512(bits + i, padded);
    });
    return _mm512_reduce_max_epi32(most);
  }
  static std::size_t count(const std::int32_t* bits, std::size_t n, std::int32_t threshold) {
    const __m512i t = _mm512_set1_epi32(threshold);
    std::size_t found = 0;
    std::size_t i = 0;
    for (; i + 64 <= n; i += 64) {
      const auto above = [&](std::size_t k) {
        return static_cast<std::uint64_t>(
            _mm512_cmpgt_epi32_mask(_mm512_load_si512(bits + i + k), t));
      };
      found += static_cast<std::size_t>(
          __builtin_popcountll(above(0) | above(16) << 16 | above(32) << 32 | above(48) << 48));
    }
    for (; i < n; i += kLanes) {
      found += static_cast<std::size_t>(
          __builtin_popcount(_mm512_cmpgt_epi32_mask(_mm512_load_si512(bits + i), t)));
    }
    return found;
  }
  // Compressed in a register, then stored whole: a compressing store is many times slower.
  static std::size_t keep(const std::int32_t* bits, std::size_t n, std::int32_t threshold,
                          std::int32_t* kept, std::int32_t* where) {
    const __m512i t = _mm512_set1_epi32(threshold);
    __m512i index = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    std::size_t found = 0;
    for (std::size_t i = 0; i < n; i += kLanes) {
      const __m512i v = _mm512_load_si512(bits + i);
      const __mmask16 mask = _mm512_cmpgt_epi32_mask(v, t);
      _mm512_storeu_si512(kept + found, _mm512_maskz_compress_epi32(mask, v));
      _mm512_storeu_si512(where + found, _mm512_maskz_compress_epi32(mask, index));
      index = _mm512_add_epi32(index, _mm512_set1_epi32(static_cast<int>(kLanes)));
      found += static_cast<std::size_t>(__builtin_popcount(mask));
    }
    return found;
  }
};

}  // namespace

const CodecKernels kAvx512CodecKernels = {
    .isa = "avx512",
    .bf16_encode = half_encode<bf16_codes>,
    .bf16_decode = half_decode<bf16_values>,
    .bf16_decode_add = half_decode_add<bf16_values>,
    .fp16_encode = half_encode<fp16_codes>,
    .fp16_decode = half_decode<fp16_values>,
    .fp16_decode_add = half_decode_add<fp16_values>,
    .largest_magnitude_bits = largest_magnitude_bits,
    .blocks = &kAvx512BlockKernels,
    .select_top = fast_select_top<SelectAvx512>,
};

}  // namespace isthmus
