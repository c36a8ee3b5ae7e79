// SPDX-License-Identifier: Apache-2.0
// The dispatch table of one instruction set. Include after one of simd_*.h.
#pragma once

#include "kernels/cpu/activation_fast.h"
#include "kernels/cpu/attention_backward_fast.h"
#include "kernels/cpu/cross_entropy_fast.h"
#include "kernels/cpu/gemm_fast.h"
#include "kernels/cpu/norm_fast.h"
#include "kernels/cpu/optimizer_fast.h"
#include "kernels/cpu/spsa_fast.h"
#include "kernels/fast_kernels.h"

namespace isthmus::kernels {
namespace {

template <typename T>
constexpr StoredKernels<T> kStoredKernels = {
    .attention_forward = attention_forward_with<Fp32Product, T>,
    .attention_backward = attention_backward_with<Fp32Product, T>,
    .norm = {.forward = norm_forward_rows<T, float>, .backward = norm_backward_rows<T, float>},
    .head_norm = {.forward = norm_forward_rows<T, T>, .backward = norm_backward_rows<T, T>},
    .swiglu_span = swiglu_span<T>,
    .swiglu_gradient_span = swiglu_gradient_span<T>,
    .rotate_span = rotate_span<T>,
};

constexpr FastKernels kTable = {
    .finish_rows = finish_whole_rows,
    .gemm = gemm_with<Fp32Product>,
    .gemm_bf16 = gemm_with<RoundedProduct>,
    .fp32 = kStoredKernels<float>,
    .bf16 = kStoredKernels<Bf16>,
    .gelu_span = gelu_span,
    .column_softmax_sums = column_softmax_sums,
    .column_softmax_gradient = column_softmax_gradient,
    .adamw_span = adamw_span,
    .squares_span = squares_span,
    .spsa_perturb_span = spsa_perturb_span,
    .spsa_apply_span = spsa_apply_span,
};

}  // namespace
}  // namespace isthmus::kernels
