// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/simd_avx512.h"
// simd_avx512.h comes first: the templates below use its definitions.
#include "kernels/cpu/fast_table.h"

namespace isthmus::kernels {
namespace {
inline __m256i Simd::narrow(V x) {
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(round_bf16(x)), 16));
}
}  // namespace

const FastKernels* avx512_kernels() { return &kTable; }

}  // namespace isthmus::kernels
