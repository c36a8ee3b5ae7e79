// SPDX-License-Identifier: Apache-2.0
#include "kernels/simd_avx512.h"
// simd_avx512.h comes first: the templates below are written on what it defines.
#include "kernels/fast_table.h"

namespace isthmus::kernels {

const FastKernels* avx512_kernels() { return &kTable; }

}  // namespace isthmus::kernels
