// SPDX-License-Identifier: Apache-2.0
// AVX2 loops, 8 values at a time; the remaining values go through the scalar arithmetic.
#include <immintrin.h>

#include "quant/cpu/codec_kernels_x86.h"
#include "quant/cpu/select_top_loops.h"
#include "quant/math/codec_math.h"

namespace isthmus {
namespace {

constexpr std::size_t kLanes = 8;

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

struct SelectAvx2 {
  static std::int32_t magnitudes(const float* x, std::size_t n, std::int32_t* bits) {
    std::size_t i = 0;
    const __m256i abs = _mm256_set1_epi32(static_cast<int>(kAbsMask));
    for (; i + kLanes <= n; i += kLanes) {
      const __m256i a = _mm256_and_si256(_mm256_castps_si256(_mm256_loadu_ps(x + i)), abs);
      _mm256_store_si256(reinterpret_cast<__m256i*>(bits + i), a);
    }
    for (; i < n; ++i) bits[i] = static_cast<std::int32_t>(bits_of(x[i]) & kAbsMask);
    for (; i % kSelectLanes != 0; ++i) bits[i] = -1;
    return static_cast<std::int32_t>(largest_magnitude_bits(x, n));
  }
  static unsigned above(const std::int32_t* at, __m256i t) {
    const __m256i v = _mm256_load_si256(reinterpret_cast<const __m256i*>(at));
    return static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(v, t))));
  }
  static std::size_t count(const std::int32_t* bits, std::size_t n, std::int32_t threshold) {
    const __m256i t = _mm256_set1_epi32(threshold);
    __m256i found = _mm256_setzero_si256();  // minus one for each
    for (std::size_t i = 0; i < n; i += kLanes) {
      const __m256i v = _mm256_load_si256(reinterpret_cast<const __m256i*>(bits + i));
      found = _mm256_add_epi32(found, _mm256_cmpgt_epi32(v, t));
    }
    alignas(32) std::int32_t lane[kLanes];
    _mm256_store_si256(reinterpret_cast<__m256i*>(lane), found);
    std::int32_t sum = 0;
    for (const std::int32_t value : lane) sum -= value;
    return static_cast<std::size_t>(sum);
  }
  static std::size_t keep(const std::int32_t* bits, std::size_t n, std::int32_t threshold,
                          std::int32_t* kept, std::int32_t* where) {
    const __m256i t = _mm256_set1_epi32(threshold);
    std::size_t found = 0;
    for (std::size_t i = 0; i < n; i += kLanes) {
      for (unsigned mask = above(bits + i, t); mask != 0; mask &= mask - 1) {
        const std::size_t at = i + static_cast<std::size_t>(__builtin_ctz(mask));
        kept[found] = bits[at];
        where[found] = static_cast<std::int32_t>(at);
        ++found;
      }
    }
    return found;
  }
};

}  // namespace

const CodecKernels kAvx2CodecKernels = {
    .isa = "avx2",
    .bf16_encode = half_encode<Bf16>,
    .bf16_decode = half_decode<Bf16>,
    .bf16_decode_add = half_decode_add<Bf16>,
    .fp16_encode = half_encode<Fp16>,
    .fp16_decode = half_decode<Fp16>,
    .fp16_decode_add = half_decode_add<Fp16>,
    .largest_magnitude_bits = largest_magnitude_bits,
    .blocks = &kAvx2BlockKernels,
    .select_top = fast_select_top<SelectAvx2>,
};

}  // namespace isthmus
