// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/simd_avx2.h"
// simd_avx2.h comes first: the templates below are written on what it defines.
#include "kernels/cpu/fast_table.h"

namespace isthmus::kernels {

const FastKernels* avx2_kernels() { return &kTable; }

}  // namespace isthmus::kernels
