// SPDX-License-Identifier: Apache-2.0
#include "quant/cpu/block_steps_avx512.h"
#include "quant/cpu/codec_kernels_x86.h"

namespace isthmus {

const BlockKernels kAvx512BlockKernels = fast_kernels<Avx512>("avx512");

}  // namespace isthmus
