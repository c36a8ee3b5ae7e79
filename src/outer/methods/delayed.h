// SPDX-License-Identifier: Apache-2.0
// Delayed DiLoCo (Kale et al. 2025, arXiv:2502.12996): the outer gradient of a round is averaged
// while the next round is trained, and applied at its end.
//   round t: theta_m <- anchor ; H inner steps
//     Delta_m^t = anchor - theta_m
//     anchor   <- OuterOpt(anchor, mean_j Delta_j^(t-1))      nothing to apply in the first round
//     launch the mean of Delta^t
// The formula is taken from third-party notes; the paper has not been read.
#pragma once

#include "outer/methods/one_round_behind.h"

namespace isthmus::outer {

class Delayed final : public OneRoundBehind {
 public:
  using OneRoundBehind::OneRoundBehind;

 private:
  void end_round() override;
  void drain() override;
  void apply(const std::optional<Settled>& before);
};

}  // namespace isthmus::outer
