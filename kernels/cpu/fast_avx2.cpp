// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/simd_avx2.h"
// simd_avx2.h comes first: the templates below use its definitions.
#include "kernels/cpu/fast_table.h"

namespace isthmus::kernels {

const FastKernels* avx2_kernels() { return &kTable; }

}  // namespace isthmus::kernels
