// SPDX-License-Identifier: Apache-2.0
// For machines that are not x86-64: the portable vectors serve alone.
#include "kernels/fast_kernels.h"

namespace isthmus::kernels {

const FastKernels* avx2_kernels() { return nullptr; }
const FastKernels* avx512_amx_kernels() { return nullptr; }
const FastKernels* avx512_bf16_kernels() { return nullptr; }
const FastKernels* avx512_kernels() { return nullptr; }

}  // namespace isthmus::kernels
