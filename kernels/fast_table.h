// SPDX-License-Identifier: Apache-2.0
// The dispatch table of one instruction set. Include after one of simd_*.h.
#pragma once

#include "kernels/attention_backward_fast.h"
#include "kernels/fast_kernels.h"
#include "kernels/gemm_fast.h"

namespace isthmus::kernels {
namespace {

constexpr FastKernels kTable = {
    .gemm = gemm_fast,
    .attention_forward = attention_forward_fast,
    .attention_backward = attention_backward_fast,
};

}  // namespace
}  // namespace isthmus::kernels
