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

#include "isthmus/outer.h"
#include "outer/parts/fragment_state.h"
#include "outer/parts/norm_guard.h"
#include "outer/parts/rounds.h"
#include "outer/parts/settings.h"

namespace isthmus::outer {

class SparseLoCo final : public OuterStrategy {
 public:
  SparseLoCo(FragmentedSettings settings, float error_decay, InnerLoop& inner, Exchange& exchange);

  StepReport step() override;
  std::vector<RoundReport> finish() override;
  [[nodiscard]] StepIndex steps() const override { return steps_; }
  [[nodiscard]] StepIndex next_use() const override {
    return StepIndex((steps_.value() / settings_.schedule.H() + 1) * settings_.schedule.H());
  }
  [[nodiscard]] std::span<const float> values(std::size_t parameter) const override;
  void save(StateWriter& writer) const override;
  void load(StateReader& reader) override;
  void forget_own_work() override;

 private:
  [[nodiscard]] RoundReport round();
  [[nodiscard]] Identity identity() const;

  FragmentedSettings settings_;
  float error_decay_;
  InnerLoop& inner_;
  FragmentState state_;
  Rounds rounds_;
  NormGuard guard_;
  std::vector<std::size_t> begins_;  // of the parameters in the fragment
  StepIndex steps_;
};

}  // namespace isthmus::outer
