// SPDX-License-Identifier: Apache-2.0
// The AVX-512-BF16 table with matrix products of bfloat16 by AMX.
#include "kernels/cpu/simd_avx512.h"
// simd_avx512.h comes first: the templates below use its definitions.
#include "kernels/cpu/gemm_fast.h"
#include "kernels/cpu/product_avx512_bf16.h"
// product_avx512_bf16.h comes first: tiles hold its pairs.
#include "kernels/cpu/product_avx512_amx.h"
#include "kernels/fast_kernels.h"

namespace isthmus::kernels {

const FastKernels* avx512_amx_kernels() {
  static const FastKernels table = [] {
    FastKernels kernels = *avx512_bf16_kernels();
    kernels.gemm_bf16 = gemm_with<TileProduct>;
    return kernels;
  }();
  return &table;
}

}  // namespace isthmus::kernels
