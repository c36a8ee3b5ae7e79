// SPDX-License-Identifier: Apache-2.0
// The x86 tables; REQUIRES: codec_isa_x86.cpp has found the instructions.
#pragma once

#include "quant/cpu/codec_kernels.h"

namespace isthmus {

extern const CodecKernels kAvx2CodecKernels;    // AVX2, FMA, F16C
extern const CodecKernels kAvx512CodecKernels;  // AVX-512 F, BW, VL, DQ; F16C
extern const BlockKernels kAvx2BlockKernels;
extern const BlockKernels kAvx512BlockKernels;

}  // namespace isthmus
