// SPDX-License-Identifier: Apache-2.0
// Eager updates (Kale et al. 2025, arXiv:2502.12996): as delayed, but a worker's own part of the
// stale mean is replaced by its own fresh part.
//   round t: theta_m <- anchor_m ; H inner steps
//     Delta_m^t = anchor_m - theta_m
//     g_m       = mean_j Delta_j^(t-1) - D(Q(Delta_m^(t-1)))/|S| + Delta_m^t/M
//     anchor_m <- OuterOpt_m(anchor_m, g_m)
//     launch the mean of Delta^t
// S: whose contributions the mean holds; the own part, as it entered the mean, is taken out only
// when m is in S. Missing stale terms count as zero, so the first round applies Delta_m/M.
// final_sync = "full" ends with everything applied. A closing round is awaited, so its mean takes
// the place of Delta_m^t/M. Where no window is open, the round in flight is awaited and its stale
// part alone is applied, since the own part is in the anchor already. "drain" drops that round.
// Anchors and momentum are each worker's own; the outer parameters are the anchors' mean.
// Read in third-party notes that give the formula for M workers that all contribute.
#pragma once

#include "outer/methods/one_round_behind.h"

namespace isthmus::outer {

class Eager final : public OneRoundBehind {
 public:
  using OneRoundBehind::OneRoundBehind;
  [[nodiscard]] bool shared_anchors() const override { return false; }

 private:
  void end_round() override;
  /// The own fresh part of the last round is applied already, and its mean has no round to end.
  void drain() override {}
  void settle_last() override;
  void close_round() override;
  /// The stale part of g_m: the mean of the round before, less this worker's own part.
  [[nodiscard]] std::vector<float> stale_part(std::optional<Settled> before);
  void take_out_stale(const Settled& before, std::vector<float>& g) const;
  void add_fresh(std::vector<float>& g);
};

}  // namespace isthmus::outer
