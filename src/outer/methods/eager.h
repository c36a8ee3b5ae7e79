// SPDX-License-Identifier: Apache-2.0
// Eager updates (Kale et al. 2025, arXiv:2502.12996): as delayed, but a worker's own part of the
// stale mean is replaced by its own fresh part.
//   round t: theta_m <- anchor_m ; H inner steps
//     Delta_m^t = anchor_m - theta_m
//     g_m       = mean_j Delta_j^(t-1) - D(Q(Delta_m^(t-1)))/|S| + Delta_m^t/M
//     anchor_m <- OuterOpt_m(anchor_m, g_m)
//     launch the mean of Delta^t
// S: the set of workers whose contributions are in the mean; the own part, as it entered the mean,
// is subtracted only if m is in S. Missing stale terms count as zero, so the first round applies
// Delta_m/M. final_sync = "full" applies everything: a closing round is waited for, so its mean
// replaces Delta_m^t/M. Without an open window, the round in flight is waited for and only its
// stale part is applied, since the own part is already in the anchor. "drain" drops that round.
// Anchors and momentum belong to each worker; the outer parameters are the anchors' mean. The
// formula is taken from third-party notes, for M workers that all contribute.
#pragma once

#include "outer/methods/one_round_behind.h"

namespace isthmus::outer {

class Eager final : public OneRoundBehind {
 public:
  using OneRoundBehind::OneRoundBehind;
  [[nodiscard]] bool shared_anchors() const override { return false; }

 private:
  void end_round() override;
  /// Does nothing: the last round's own fresh part is already applied, and no later round would
  /// apply its mean.
  void drain() override {}
  void settle_last() override;
  void close_round() override;
  /// The stale part of g_m: the previous round's mean without this worker's own part.
  [[nodiscard]] std::vector<float> stale_part(std::optional<Settled> before);
  void take_out_stale(const Settled& before, std::vector<float>& g) const;
  void add_fresh(std::vector<float>& g);
};

}  // namespace isthmus::outer
