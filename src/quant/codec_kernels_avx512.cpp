// SPDX-License-Identifier: Apache-2.0
// AVX-512 loops, 16 values at a time (int8: 64); tails use masks, so there is no scalar remainder.
// Per value: encode reads 4 bytes and writes 2 (bf16, fp16) or about 1 (int8); decode the reverse.
#include <immintrin.h>

#include "quant/codec_kernels_x86.h"
#include "quant/codec_math.h"

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
float load_scale(const std::byte* bytes, std::size_t i) {
  float scale = 0;
  std::memcpy(&scale, bytes + sizeof scale * i, sizeof scale);
  return scale;
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

// x / scale, correctly rounded as the division of the portable loop is, from the reciprocal: two
// Markstein corrections (IBM J. Res. Dev. 34, 1990). The first leaves less than one unit of error,
// the second then rounds correctly; both residuals are exact for scales of the plain range.
// Four fused operations replace a division that takes 16 cycles.
__m512 plain_quotient(__m512 x, __m512 scale, __m512 inverse) {
  const __m512 q0 = _mm512_mul_ps(x, inverse);
  const __m512 q1 = _mm512_fmadd_ps(_mm512_fnmadd_ps(q0, scale, x), inverse, q0);
  return _mm512_fmadd_ps(_mm512_fnmadd_ps(q1, scale, x), inverse, q1);
}

__m512i nearest(__m512 quotient) { return _mm512_cvt_roundps_epi32(quotient, kNearest); }
void store_codes(std::byte* codes, __mmask16 mask, __m512 quotient) {
  _mm_mask_storeu_epi8(codes, mask, _mm512_cvtepi32_epi8(nearest(quotient)));
}

// 64 codes at once. Packing works inside 128-bit lanes; the permutation puts fours back in order.
void store_64_codes(std::byte* codes, __m512i a, __m512i b, __m512i c, __m512i d) {
  const __m512i mixed = _mm512_packs_epi16(_mm512_packs_epi32(a, b), _mm512_packs_epi32(c, d));
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  _mm512_storeu_si512(codes, _mm512_permutexvar_epi32(order, mixed));
}

void encode_plain_block(const float* x, std::size_t n, float scale, std::byte* codes) {
  const __m512 s = _mm512_set1_ps(scale);
  const __m512 inverse = _mm512_set1_ps(1.0f / scale);
  const auto code = [=](const float* at) {
    return nearest(plain_quotient(_mm512_loadu_ps(at), s, inverse));
  };
  std::size_t done = 0;
  for (; done + 4 * kLanes <= n; done += 4 * kLanes) {
    const float* const at = x + done;
    store_64_codes(codes + done, code(at), code(at + kLanes), code(at + 2 * kLanes),
                   code(at + 3 * kLanes));
  }
  for_each_vector(n - done, [=](std::size_t i, __mmask16 mask) {
    const __m512 value = _mm512_maskz_loadu_ps(mask, x + done + i);
    store_codes(codes + done + i, mask, plain_quotient(value, s, inverse));
  });
}
void encode_extreme_block(const float* x, std::size_t n, float scale, std::byte* codes) {
  const __m512 s = _mm512_set1_ps(scale);
  const __m512 limit = _mm512_set1_ps(kInt8Levels);
  const __m512 minus_limit = _mm512_set1_ps(-kInt8Levels);
  for_each_vector(n, [=](std::size_t i, __mmask16 mask) {
    const __m512 quotient = _mm512_div_ps(_mm512_maskz_loadu_ps(mask, x + i), s);
    store_codes(codes + i, mask, _mm512_min_ps(_mm512_max_ps(quotient, minus_limit), limit));
  });
}

void encode_block(const float* x, std::size_t n, float scale, std::byte* codes) {
  if (!(scale > 0)) {  // all zero, or marked as not finite
    std::memset(codes, 0, n);
  } else if (scale >= kInt8PlainScaleMin && scale <= kInt8PlainScaleMax) {
    encode_plain_block(x, n, scale, codes);
  } else {
    encode_extreme_block(x, n, scale, codes);
  }
}

// All scales first: they do not wait for one another, and the second pass finds x in the L1 cache.
void int8_encode(const float* x, std::size_t n, std::size_t block, std::byte* out) {
  for (std::size_t begin = 0; begin < n; begin += block) {
    const std::size_t size = n - begin < block ? n - begin : block;
    const float scale = int8_scale(largest_magnitude_bits(x + begin, size));
    std::memcpy(out + sizeof scale * (begin / block), &scale, sizeof scale);
  }
  std::byte* const codes = out + sizeof(float) * ((n + block - 1) / block);
  for (std::size_t begin = 0; begin < n; begin += block) {
    const std::size_t size = n - begin < block ? n - begin : block;
    encode_block(x + begin, size, load_scale(out, begin / block), codes + begin);
  }
}

__m512 int8_values(__mmask16 mask, const std::byte* codes, __m512 scale) {
  const __m128i q = _mm_maskz_loadu_epi8(mask, codes);
  return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(q)), scale);
}
void int8_decode(const std::byte* bytes, std::size_t n, std::size_t block, float* out) {
  const std::byte* const codes = bytes + sizeof(float) * ((n + block - 1) / block);
  for (std::size_t begin = 0; begin < n; begin += block) {
    const std::size_t size = n - begin < block ? n - begin : block;
    const __m512 scale = _mm512_set1_ps(load_scale(bytes, begin / block));
    for_each_vector(size, [=](std::size_t i, __mmask16 mask) {
      _mm512_mask_storeu_ps(out + begin + i, mask, int8_values(mask, codes + begin + i, scale));
    });
  }
}
void int8_decode_add(const std::byte* bytes, std::size_t n, std::size_t block, float* sum) {
  const std::byte* const codes = bytes + sizeof(float) * ((n + block - 1) / block);
  for (std::size_t begin = 0; begin < n; begin += block) {
    const std::size_t size = n - begin < block ? n - begin : block;
    const __m512 scale = _mm512_set1_ps(load_scale(bytes, begin / block));
    for_each_vector(size, [=](std::size_t i, __mmask16 mask) {
      float* const at = sum + begin + i;
      const __m512 value = int8_values(mask, codes + begin + i, scale);
      _mm512_mask_storeu_ps(at, mask, _mm512_add_ps(_mm512_maskz_loadu_ps(mask, at), value));
    });
  }
}

bool int8_codes_valid(const std::byte* codes, std::size_t n) {
  constexpr std::size_t kCodes = 64;
  const __m512i forbidden = _mm512_set1_epi8(-128);
  __mmask64 found = 0;
  for (std::size_t i = 0; i < n; i += kCodes) {
    const std::size_t left = n - i;
    const __mmask64 mask = left >= kCodes ? ~__mmask64{0} : (__mmask64{1} << left) - 1;
    found |= _mm512_cmpeq_epi8_mask(_mm512_maskz_loadu_epi8(mask, codes + i), forbidden);
  }
  return found == 0;
}

}  // namespace

const CodecKernels kAvx512CodecKernels = {
    .isa = "avx512",
    .bf16_encode = half_encode<bf16_codes>,
    .bf16_decode = half_decode<bf16_values>,
    .bf16_decode_add = half_decode_add<bf16_values>,
    .fp16_encode = half_encode<fp16_codes>,
    .fp16_decode = half_decode<fp16_values>,
    .fp16_decode_add = half_decode_add<fp16_values>,
    .int8_encode = int8_encode,
    .int8_decode = int8_decode,
    .int8_decode_add = int8_decode_add,
    .largest_magnitude_bits = largest_magnitude_bits,
    .int8_codes_valid = int8_codes_valid,
};

}  // namespace isthmus
