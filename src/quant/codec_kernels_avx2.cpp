// SPDX-License-Identifier: Apache-2.0
// AVX2 loops, 8 values at a time (int8: 32); what is left over goes through the scalar arithmetic.
#include <immintrin.h>

#include "quant/codec_kernels_x86.h"
#include "quant/codec_math.h"

namespace isthmus {
namespace {

constexpr std::size_t kLanes = 8;
constexpr std::size_t kPack = 32;  // codes stored at once by int8

float load_scale(const std::byte* bytes, std::size_t i) {
  float scale = 0;
  std::memcpy(&scale, bytes + sizeof scale * i, sizeof scale);
  return scale;
}
__m128i load_codes(const std::byte* bytes) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes));
}

// Two-byte codes: how eight values, and one, become codes and come back.
struct Bf16 {
  static __m128i codes(__m256 x) {
    const __m256i u = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
    const __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x0040'0000));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const __m256i high = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
  }
  static __m256 values(__m128i codes) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(codes), 16));
  }
  static std::uint16_t code(float x) { return bf16_of(x); }
  static float value(std::uint16_t code) { return float_of_bf16(code); }
};
struct Fp16 {
  static __m128i codes(__m256 x) {
    return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  static __m256 values(__m128i codes) { return _mm256_cvtph_ps(codes); }
  static std::uint16_t code(float x) { return fp16_of(x); }
  static float value(std::uint16_t code) { return float_of_fp16(code); }
};

template <typename Half>
float half_value(const std::byte* bytes, std::size_t i) {
  std::uint16_t code = 0;
  std::memcpy(&code, bytes + 2 * i, sizeof code);
  return Half::value(code);
}

template <typename Half>
void half_encode(const float* x, std::size_t n, std::byte* out) {
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 2 * i), Half::codes(_mm256_loadu_ps(x + i)));
  }
  for (; i < n; ++i) {
    const std::uint16_t code = Half::code(x[i]);
    std::memcpy(out + 2 * i, &code, sizeof code);
  }
}
template <typename Half>
void half_decode(const std::byte* bytes, std::size_t n, float* out) {
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    _mm256_storeu_ps(out + i, Half::values(load_codes(bytes + 2 * i)));
  }
  for (; i < n; ++i) out[i] = half_value<Half>(bytes, i);
}
template <typename Half>
void half_decode_add(const std::byte* bytes, std::size_t n, float* sum) {
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const __m256 value = Half::values(load_codes(bytes + 2 * i));
    _mm256_storeu_ps(sum + i, _mm256_add_ps(_mm256_loadu_ps(sum + i), value));
  }
  for (; i < n; ++i) sum[i] += half_value<Half>(bytes, i);
}

std::uint32_t largest_magnitude_bits(const float* x, std::size_t n) {
  const __m256i abs = _mm256_set1_epi32(static_cast<int>(kAbsMask));
  __m256i most = _mm256_setzero_si256();
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const __m256i u = _mm256_castps_si256(_mm256_loadu_ps(x + i));
    most = _mm256_max_epu32(most, _mm256_and_si256(u, abs));
  }
  alignas(32) std::uint32_t lane[kLanes];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lane), most);
  std::uint32_t largest = 0;
  for (const std::uint32_t magnitude : lane) largest = magnitude > largest ? magnitude : largest;
  for (; i < n; ++i) {
    const std::uint32_t magnitude = bits_of(x[i]) & kAbsMask;
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}

// The correctly rounded x / scale by reciprocal; see codec_kernels_avx512.cpp.
__m256i plain_code(const float* x, __m256 scale, __m256 inverse) {
  const __m256 v = _mm256_loadu_ps(x);
  const __m256 q0 = _mm256_mul_ps(v, inverse);
  const __m256 q1 = _mm256_fmadd_ps(_mm256_fnmadd_ps(q0, scale, v), inverse, q0);
  return _mm256_cvtps_epi32(_mm256_fmadd_ps(_mm256_fnmadd_ps(q1, scale, v), inverse, q1));
}

// Packing works inside 128-bit halves; the permutation puts the groups of four back in order.
__m256i pack_codes(__m256i a, __m256i b, __m256i c, __m256i d) {
  const __m256i mixed = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
  return _mm256_permutevar8x32_epi32(mixed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

void encode_block(const float* x, std::size_t n, float scale, std::byte* codes) {
  if (!(scale > 0)) {  // all zero, or marked as not finite
    std::memset(codes, 0, n);
    return;
  }
  std::size_t i = 0;
  if (scale >= kInt8PlainScaleMin && scale <= kInt8PlainScaleMax) {
    const __m256 s = _mm256_set1_ps(scale);
    const __m256 inverse = _mm256_set1_ps(1.0f / scale);
    for (; i + kPack <= n; i += kPack) {
      const __m256i packed = pack_codes(
          plain_code(x + i, s, inverse), plain_code(x + i + kLanes, s, inverse),
          plain_code(x + i + 2 * kLanes, s, inverse), plain_code(x + i + 3 * kLanes, s, inverse));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes + i), packed);
    }
  }
  for (; i < n; ++i) codes[i] = static_cast<std::byte>(int8_of_quotient(x[i] / scale));
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

__m256 int8_values(const std::byte* codes, __m256 scale) {
  const __m128i q = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes));
  return _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q)), scale);
}
float int8_value(std::byte code, float scale) {
  return static_cast<float>(static_cast<std::int8_t>(code)) * scale;
}
void int8_decode(const std::byte* bytes, std::size_t n, std::size_t block, float* out) {
  const std::byte* const codes = bytes + sizeof(float) * ((n + block - 1) / block);
  for (std::size_t begin = 0; begin < n; begin += block) {
    const std::size_t end = n - begin < block ? n : begin + block;
    const float scale = load_scale(bytes, begin / block);
    const __m256 s = _mm256_set1_ps(scale);
    std::size_t i = begin;
    for (; i + kLanes <= end; i += kLanes) _mm256_storeu_ps(out + i, int8_values(codes + i, s));
    for (; i < end; ++i) out[i] = int8_value(codes[i], scale);
  }
}
void int8_decode_add(const std::byte* bytes, std::size_t n, std::size_t block, float* sum) {
  const std::byte* const codes = bytes + sizeof(float) * ((n + block - 1) / block);
  for (std::size_t begin = 0; begin < n; begin += block) {
    const std::size_t end = n - begin < block ? n : begin + block;
    const float scale = load_scale(bytes, begin / block);
    const __m256 s = _mm256_set1_ps(scale);
    std::size_t i = begin;
    for (; i + kLanes <= end; i += kLanes) {
      const __m256 value = int8_values(codes + i, s);
      _mm256_storeu_ps(sum + i, _mm256_add_ps(_mm256_loadu_ps(sum + i), value));
    }
    for (; i < end; ++i) sum[i] += int8_value(codes[i], scale);
  }
}

bool int8_codes_valid(const std::byte* codes, std::size_t n) {
  const __m256i forbidden = _mm256_set1_epi8(-128);
  __m256i found = _mm256_setzero_si256();
  std::size_t i = 0;
  for (; i + kPack <= n; i += kPack) {
    const __m256i q = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + i));
    found = _mm256_or_si256(found, _mm256_cmpeq_epi8(q, forbidden));
  }
  bool any = _mm256_testz_si256(found, found) == 0;
  for (; i < n; ++i) any |= codes[i] == std::byte{0x80};
  return !any;
}

}  // namespace

const CodecKernels kAvx2CodecKernels = {
    .isa = "avx2",
    .bf16_encode = half_encode<Bf16>,
    .bf16_decode = half_decode<Bf16>,
    .bf16_decode_add = half_decode_add<Bf16>,
    .fp16_encode = half_encode<Fp16>,
    .fp16_decode = half_decode<Fp16>,
    .fp16_decode_add = half_decode_add<Fp16>,
    .int8_encode = int8_encode,
    .int8_decode = int8_decode,
    .int8_decode_add = int8_decode_add,
    .largest_magnitude_bits = largest_magnitude_bits,
    .int8_codes_valid = int8_codes_valid,
};

}  // namespace isthmus
