// SPDX-License-Identifier: Apache-2.0
// Built in place of gemm_onednn.cpp without ISTHMUS_ONEDNN.
#include "kernels/fast_kernels.h"

namespace isthmus::kernels {

const FastKernels* onednn_kernels() { return nullptr; }

}  // namespace isthmus::kernels
