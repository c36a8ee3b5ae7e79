// SPDX-License-Identifier: Apache-2.0
// The dispatch table: one entry per float kernel that has vector code, one table per instruction
// set, filled by fast_<isa>.cpp from the templates in *_fast.h.
#pragma once

#include "kernels/attention.h"
#include "kernels/gemm.h"
#include "kernels/isa.h"

namespace isthmus::kernels {

inline constexpr std::int64_t kAttentionDimUnit = 16;

struct FastKernels {
  void (*gemm)(ThreadTeam& team, const Gemm<float>& g);
  // Both REQUIRE head_dim % kAttentionDimUnit == 0.
  void (*attention_forward)(ThreadTeam& team, const AttentionShape& shape, HeadsView<const float> q,
                            HeadsView<const float> k, HeadsView<const float> v,
                            HeadsView<float> out, float* lse);
  void (*attention_backward)(ThreadTeam& team, const AttentionShape& shape,
                             const AttentionBackward<float>& a);
};

/// The table of the active instruction set.
[[nodiscard]] const FastKernels& fast_kernels();

/// Tables by instruction set; null where this build does not hold it.
[[nodiscard]] const FastKernels* portable_kernels();
[[nodiscard]] const FastKernels* avx2_kernels();
[[nodiscard]] const FastKernels* avx512_kernels();

}  // namespace isthmus::kernels
