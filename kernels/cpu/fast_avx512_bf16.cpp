// SPDX-License-Identifier: Apache-2.0
// The AVX-512 table with products of bfloat16 by vdpbf16ps.
#include "kernels/cpu/simd_avx512.h"
// simd_avx512.h comes first: the templates below use its definitions.
#include "kernels/cpu/attention_backward_fast.h"
#include "kernels/cpu/gemm_fast.h"
#include "kernels/cpu/product_avx512_bf16.h"
#include "kernels/fast_kernels.h"

namespace isthmus::kernels {

const FastKernels* avx512_bf16_kernels() {
  static const FastKernels table = [] {
    FastKernels kernels = *avx512_kernels();
    kernels.gemm_bf16 = gemm_with<PairProduct>;
    kernels.bf16.attention_forward = attention_forward_with<PairProduct, Bf16>;
    kernels.bf16.attention_backward = attention_backward_with<PairProduct, Bf16>;
    return kernels;
  }();
  return &table;
}

}  // namespace isthmus::kernels
