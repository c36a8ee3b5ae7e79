// SPDX-License-Identifier: Apache-2.0
// The dispatch table: one entry per float kernel that has vector code, one table per instruction
// set, filled by fast_<isa>.cpp from the templates in *_fast.h.
#pragma once

#include "kernels/attention.h"
#include "kernels/gemm.h"
#include "kernels/isa.h"
#include "kernels/norm.h"
#include "kernels/optimizer_math.h"
#include "kernels/spsa.h"

namespace isthmus::kernels {

inline constexpr std::int64_t kAttentionDimUnit = 16;
// A packed row of one head fits in a row of probabilities (attention_fast.h).
inline constexpr std::int64_t kAttentionMostPackedDim = 512;

using AttentionForwardKernel = void(ThreadTeam& team, const AttentionShape& shape,
                                    HeadsView<const float> q, HeadsView<const float> k,
                                    HeadsView<const float> v, HeadsView<float> out, float* lse);
using AttentionBackwardKernel = void(ThreadTeam& team, const AttentionShape& shape,
                                     const AttentionBackward<float>& a);

struct FastKernels {
  void (*gemm)(ThreadTeam& team, const Gemm<float>& g);
  void (*gemm_bf16)(ThreadTeam& team, const Gemm<float>& g);
  // All four REQUIRE head_dim % kAttentionDimUnit == 0. Where products of bfloat16 are no faster,
  // attention stays in float.
  AttentionForwardKernel* attention_forward;
  AttentionForwardKernel* attention_forward_bf16;
  AttentionBackwardKernel* attention_backward;
  AttentionBackwardKernel* attention_backward_bf16;
  // Rows [begin, end); `centred` chooses LayerNorm over RMSNorm.
  void (*norm_forward_rows)(bool centred, const NormForward<float>& norm, std::int64_t begin,
                            std::int64_t end);
  void (*norm_backward_rows)(bool centred, const NormBackward<float>& norm, std::int64_t begin,
                             std::int64_t end, float* d_weight, float* d_bias);
  void (*swiglu_span)(std::int64_t n, const float* gate, const float* up, float* out);
  void (*swiglu_gradient_span)(std::int64_t n, const float* gate, const float* up,
                               const float* d_out, float* d_gate, float* d_up);
  void (*rotate_span)(std::int64_t n, const float* cosine, const float* sine, float direction,
                      float* low, float* high);
  void (*column_softmax_sums)(const float* logits, std::int64_t ld, std::int64_t rows,
                              std::int64_t tokens, float* top, float* sum);
  void (*column_softmax_gradient)(float* logits, std::int64_t ld, std::int64_t rows,
                                  std::int64_t tokens, const float* top, const float* factor);
  void (*adamw_span)(const AdamWConstants<float>& constants, std::int64_t n, float* p,
                     const float* g, float* m, float* v);
  double (*squares_span)(std::int64_t n, const float* x);
  // Canonical elements [first, first + n); the same bits from every table.
  void (*spsa_perturb_span)(std::uint64_t run_key, const SpsaDirection& z, float eps,
                            std::int64_t first, std::int64_t n, const float* w, float* out);
  void (*spsa_apply_span)(std::uint64_t run_key, const SpsaStep* steps, std::size_t count,
                          std::int64_t first, std::int64_t n, float* w);
};

/// The table of the active instruction set.
[[nodiscard]] const FastKernels& fast_kernels();

/// Tables by instruction set; null where this build does not hold it.
[[nodiscard]] const FastKernels* portable_kernels();
[[nodiscard]] const FastKernels* avx2_kernels();
[[nodiscard]] const FastKernels* avx512_kernels();
[[nodiscard]] const FastKernels* avx512_bf16_kernels();

}  // namespace isthmus::kernels
