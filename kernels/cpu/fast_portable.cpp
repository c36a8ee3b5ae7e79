// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/simd_portable.h"
// simd_portable.h comes first: the templates below use its definitions.
#include "kernels/cpu/fast_table.h"

namespace isthmus::kernels {

const FastKernels* portable_kernels() { return &kTable; }

}  // namespace isthmus::kernels
