// SPDX-License-Identifier: Apache-2.0
// Run-time choice among the x86 tables.
#include <algorithm>
#include <array>

#include "quant/cpu/codec_kernels.h"
#include "quant/cpu/codec_kernels_x86.h"

namespace isthmus {
namespace {

struct Available {
  std::array<const CodecKernels*, 3> tables = {&kPortableCodecKernels};
  std::size_t count = 1;
};

Available probe() {
  Available found;
  __builtin_cpu_init();
  // Every machine with AVX2 has F16C too; clang 14 has no name to ask for it.
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (avx2) found.tables[found.count++] = &kAvx2CodecKernels;
  if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
    found.tables[found.count++] = &kAvx512CodecKernels;
  }
  return found;
}

const Available& available() {
  static const Available kFound = probe();
  return kFound;
}

}  // namespace

std::span<const CodecKernels* const> available_codec_kernels() {
  return {available().tables.data(), available().count};
}

const CodecKernels& codec_kernels() { return *available_codec_kernels().back(); }

}  // namespace isthmus
