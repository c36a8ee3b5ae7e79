// SPDX-License-Identifier: Apache-2.0
// The reference loops: what every machine runs when it has nothing better, and the oracle.
#include "quant/codec_kernels.h"
#include "quant/codec_math.h"

namespace isthmus {
namespace {

std::uint16_t load_code(const std::byte* bytes, std::size_t i) {
  std::uint16_t code = 0;
  std::memcpy(&code, bytes + 2 * i, sizeof code);
  return code;
}
void store_code(std::byte* bytes, std::size_t i, std::uint16_t code) {
  std::memcpy(bytes + 2 * i, &code, sizeof code);
}
float load_scale(const std::byte* bytes, std::size_t i) {
  float scale = 0;
  std::memcpy(&scale, bytes + sizeof scale * i, sizeof scale);
  return scale;
}

void bf16_encode(const float* x, std::size_t n, std::byte* out) {
  for (std::size_t i = 0; i < n; ++i) store_code(out, i, bf16_of(x[i]));
}
void bf16_decode(const std::byte* bytes, std::size_t n, float* out) {
  for (std::size_t i = 0; i < n; ++i) out[i] = float_of_bf16(load_code(bytes, i));
}
void bf16_decode_add(const std::byte* bytes, std::size_t n, float* sum) {
  for (std::size_t i = 0; i < n; ++i) sum[i] += float_of_bf16(load_code(bytes, i));
}

void fp16_encode(const float* x, std::size_t n, std::byte* out) {
  for (std::size_t i = 0; i < n; ++i) store_code(out, i, fp16_of(x[i]));
}
void fp16_decode(const std::byte* bytes, std::size_t n, float* out) {
  for (std::size_t i = 0; i < n; ++i) out[i] = float_of_fp16(load_code(bytes, i));
}
void fp16_decode_add(const std::byte* bytes, std::size_t n, float* sum) {
  for (std::size_t i = 0; i < n; ++i) sum[i] += float_of_fp16(load_code(bytes, i));
}

// Magnitudes compare as their bit patterns do, and NaN and infinity come out largest.
std::uint32_t largest_magnitude_bits(const float* x, std::size_t n) {
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t magnitude = bits_of(x[i]) & kAbsMask;
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}

void int8_encode(const float* x, std::size_t n, std::size_t block, std::byte* out) {
  std::byte* const codes = out + sizeof(float) * ((n + block - 1) / block);
  for (std::size_t begin = 0; begin < n; begin += block) {
    const std::size_t size = n - begin < block ? n - begin : block;
    const float scale = int8_scale(largest_magnitude_bits(x + begin, size));
    std::memcpy(out + sizeof scale * (begin / block), &scale, sizeof scale);
    if (!(scale > 0)) {  // all zero, or marked as not finite
      std::memset(codes + begin, 0, size);
      continue;
    }
    for (std::size_t i = begin; i < begin + size; ++i) {
      codes[i] = static_cast<std::byte>(int8_of_quotient(x[i] / scale));
    }
  }
}

float int8_value(std::byte code, float scale) {
  return static_cast<float>(static_cast<std::int8_t>(code)) * scale;
}
void int8_decode(const std::byte* bytes, std::size_t n, std::size_t block, float* out) {
  const std::byte* const codes = bytes + sizeof(float) * ((n + block - 1) / block);
  for (std::size_t begin = 0; begin < n; begin += block) {
    const std::size_t end = n - begin < block ? n : begin + block;
    const float scale = load_scale(bytes, begin / block);
    for (std::size_t i = begin; i < end; ++i) out[i] = int8_value(codes[i], scale);
  }
}
void int8_decode_add(const std::byte* bytes, std::size_t n, std::size_t block, float* sum) {
  const std::byte* const codes = bytes + sizeof(float) * ((n + block - 1) / block);
  for (std::size_t begin = 0; begin < n; begin += block) {
    const std::size_t end = n - begin < block ? n : begin + block;
    const float scale = load_scale(bytes, begin / block);
    for (std::size_t i = begin; i < end; ++i) sum[i] += int8_value(codes[i], scale);
  }
}
bool int8_codes_valid(const std::byte* codes, std::size_t n) {
  bool found = false;
  for (std::size_t i = 0; i < n; ++i) found |= codes[i] == std::byte{0x80};
  return !found;
}

}  // namespace

const CodecKernels kPortableCodecKernels = {
    .isa = "portable",
    .bf16_encode = bf16_encode,
    .bf16_decode = bf16_decode,
    .bf16_decode_add = bf16_decode_add,
    .fp16_encode = fp16_encode,
    .fp16_decode = fp16_decode,
    .fp16_decode_add = fp16_decode_add,
    .int8_encode = int8_encode,
    .int8_decode = int8_decode,
    .int8_decode_add = int8_decode_add,
    .largest_magnitude_bits = largest_magnitude_bits,
    .int8_codes_valid = int8_codes_valid,
};

}  // namespace isthmus
