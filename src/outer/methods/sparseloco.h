// SPDX-License-Identifier: Apache-2.0
// SparseLoCo (Sarfi et al. 2025, arXiv:2508.15706 Alg. 1; Templar's public code): DiLoCo that sends
// few values of two bits each, and uses a decaying error feedback in place of the outer momentum.
//   each round of H inner steps, worker m:
//     Delta_m = anchor - theta_m
//     e_m    <- decay e_m + Delta_m
//     s_m     = Q(TopK(e_m))                        k of every 4,096 values
//     e_m    <- e_m - s_m                           the values left out and the error of Q
//   every worker has all s_j, and clips their norms to the median:
//     s_j    <- s_j min(1, median_i |s_i| / |s_j|)
//     anchor <- anchor - lr mean_j s_j ;  theta_m <- anchor
// Deviations: lr multiplies the step, not e, which is equal while lr is constant; tiles are 4,096
// values of all tensors concatenated, not 64 x 64 blocks of one tensor; the median is over whole
// contributions, not per tensor. A contribution that was sent but not counted is added to e again.
// One thread.
#pragma once

#include <vector>

#include "outer/methods/whole_model.h"

namespace isthmus::outer {

class SparseLoCo final : public WholeModel {
 public:
  SparseLoCo(FragmentedSettings settings, float error_decay, InnerLoop& inner, Exchange& exchange);

  std::vector<RoundReport> finish() override;

 private:
  void end_round() override;
  [[nodiscard]] Identity identity() const override;

  float error_decay_;
};

}  // namespace isthmus::outer
