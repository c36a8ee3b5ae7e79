// SPDX-License-Identifier: Apache-2.0
// The inner loops of the codecs, one table per instruction set. All tables give the same bits;
// codec_kernels_portable.cpp is the plainest loop and the oracle of the others.
//
// n values, n <= kTileValues; byte pointers need no alignment; floats are float-aligned.
// Stateless; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "quant/cpu/block_kernels.h"
#include "quant/cpu/select_top.h"

namespace isthmus {

struct CodecKernels {
  const char* isa;  // "portable", "avx2", "avx512"

  void (*bf16_encode)(const float* x, std::size_t n, std::byte* out);
  void (*bf16_decode)(const std::byte* bytes, std::size_t n, float* out);
  void (*bf16_decode_add)(const std::byte* bytes, std::size_t n, float* sum);

  void (*fp16_encode)(const float* x, std::size_t n, std::byte* out);
  void (*fp16_decode)(const std::byte* bytes, std::size_t n, float* out);
  void (*fp16_decode_add)(const std::byte* bytes, std::size_t n, float* sum);

  // Largest |x| as a bit pattern; NaN and infinity compare as largest. Also the read-only pass by
  // which codec_timing.cpp measures its bound; n may then have any value.
  std::uint32_t (*largest_magnitude_bits)(const float* x, std::size_t n);
  const BlockKernels* blocks;
  SelectTop select_top;
};

extern const CodecKernels kPortableCodecKernels;

/// Tables that this machine can run, plainest first; the last one is the fastest.
[[nodiscard]] std::span<const CodecKernels* const> available_codec_kernels();
/// The fastest of them.
[[nodiscard]] const CodecKernels& codec_kernels();

}  // namespace isthmus
