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

/// Rows [begin, end); `centred` chooses LayerNorm over RMSNorm.
template <typename T, typename Stream>
struct NormKernels {
  void (*forward)(bool centred, const NormForward<T, Stream>& norm, std::int64_t begin,
                  std::int64_t end);
  void (*backward)(bool centred, const NormBackward<T, Stream>& norm, std::int64_t begin,
                   std::int64_t end, float* d_weight, float* d_bias);
};

/// Kernels on activations stored as T.
template <typename T>
struct StoredKernels {
  // Both REQUIRE head_dim % kAttentionDimUnit == 0. If bfloat16 products are no faster, those of
  // attention are computed in float.
  void (*attention_forward)(ThreadTeam& team, const AttentionShape& shape, HeadsView<const T> q,
                            HeadsView<const T> k, HeadsView<const T> v, HeadsView<T> out,
                            float* lse);
  void (*attention_backward)(ThreadTeam& team, const AttentionShape& shape,
                             const AttentionBackward<T>& a);
  NormKernels<T, float> norm;  // of the residual stream
  NormKernels<T, T> head_norm;
  void (*swiglu_span)(std::int64_t n, const T* gate, const T* up, T* out);
  void (*swiglu_gradient_span)(std::int64_t n, const T* gate, const T* up, const T* d_out,
                               T* d_gate, T* d_up);
  void (*rotate_span)(std::int64_t n, const float* cosine, const float* sine, float direction,
                      T* low, T* high);
};

struct FastKernels {
  /// Applies the epilogues of g, and stores C, for rows [i, i + rows) of a finished product at
  /// `tile`, rows `ld` apart, which may be C itself.
  void (*finish_rows)(const Gemm<float>& g, const float* tile, std::int64_t ld, std::int64_t i,
                      std::int64_t rows);
  void (*gemm)(ThreadTeam& team, const Gemm<float>& g);
  void (*gemm_bf16)(ThreadTeam& team, const Gemm<float>& g);
  StoredKernels<float> fp32;
  StoredKernels<Bf16> bf16;
  template <typename T>
  [[nodiscard]] const StoredKernels<T>& on() const {
    if constexpr (std::is_same_v<T, Bf16>) {
      return bf16;
    } else {
      return fp32;
    }
  }
  void (*gelu_span)(std::int64_t n, const float* x, float* value, float* slope);
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

/// The table of the best instruction set.
[[nodiscard]] const FastKernels& own_kernels();
/// The table of the active instruction set.
[[nodiscard]] const FastKernels& fast_kernels();

/// Tables by instruction set; null if this build does not have it.
[[nodiscard]] const FastKernels* portable_kernels();
[[nodiscard]] const FastKernels* onednn_kernels();
[[nodiscard]] const FastKernels* avx2_kernels();
[[nodiscard]] const FastKernels* avx512_kernels();
[[nodiscard]] const FastKernels* avx512_bf16_kernels();
[[nodiscard]] const FastKernels* avx512_amx_kernels();

}  // namespace isthmus::kernels
