// SPDX-License-Identifier: Apache-2.0
// The reference loops: every machine without a faster table runs them, and tests use them as
// oracle.
#include "quant/cpu/codec_kernels.h"
#include "quant/math/codec_math.h"

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

}  // namespace

const CodecKernels kPortableCodecKernels = {
    .isa = "portable",
    .bf16_encode = bf16_encode,
    .bf16_decode = bf16_decode,
    .bf16_decode_add = bf16_decode_add,
    .fp16_encode = fp16_encode,
    .fp16_decode = fp16_decode,
    .fp16_decode_add = fp16_decode_add,
    .largest_magnitude_bits = largest_magnitude_bits,
    .blocks = &kPortableBlockKernels,
    .select_top = select_top_portable,
};

}  // namespace isthmus
