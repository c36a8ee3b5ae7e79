// SPDX-License-Identifier: Apache-2.0
// Chosen by CMake on machines without hand-written kernels.
#include <array>

#include "quant/cpu/codec_kernels.h"

namespace isthmus {

std::span<const CodecKernels* const> available_codec_kernels() {
  static constexpr std::array<const CodecKernels*, 1> kTables = {&kPortableCodecKernels};
  return kTables;
}

const CodecKernels& codec_kernels() { return kPortableCodecKernels; }

}  // namespace isthmus
