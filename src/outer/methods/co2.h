// SPDX-License-Identifier: Apache-2.0
// CO2 (Sun et al. 2024, arXiv:2401.16265): local steps whose average arrives one round late, fully
// overlapped, with an outer heavy ball, a staleness penalty and a clipped momentum.
//   round t: H inner steps from x_t to x_t,H
//     Delta_m = x_t - x_t,H
//     m       <- beta m + mean_j Delta_j^(t-1) / Lambda_t       nothing to apply in the first round
//     x_(t+1) <- x_t - alpha clip(m, -phi, phi)                  the stored m stays unclipped
//     launch the mean of Delta
// The paper averages parameters; Delta^(t-1) = x_(t-1) - x_(t-1),H is the same in exact arithmetic
// and takes codecs.
//
// Lambda: the paper's Eq. 3 has not been read, so none of these is "CO2's penalty".
//   none       1
//   constant   c >= 1 (the public code's, default 1)
//   gap-aware  1 + (gamma_0 / gamma_t) |x_t - x_(t-1)| / |mean Delta^(t-1)|, after Barkai et al.
//              (arXiv:1909.10802): the distance that the anchor has moved since Delta was taken,
//              relative to the size of Delta; gamma_t is the inner rate of the round's last step,
//              gamma_0 the highest rate so far. All numbers are shared, so all workers divide by
//              the same Lambda.
// The public code is no reference: its clip has no effect and its default mode is not stale.
#pragma once

#include "outer/methods/one_round_behind.h"

namespace isthmus::outer {

class Co2 final : public OneRoundBehind {
 public:
  struct Options {
    StalenessPenalty penalty = StalenessPenalty::kNone;
    float constant = 1;
    float clip = 0;  // phi; 0: none
  };
  Co2(FragmentedSettings settings, Options options, InnerLoop& inner, Exchange& exchange)
      : OneRoundBehind(std::move(settings), inner, exchange), options_(options) {}

  void save(StateWriter& writer) const override;
  void load(StateReader& reader) override;

 private:
  void end_round() override;
  void drain() override;
  void apply(std::optional<Settled> before);
  [[nodiscard]] float staleness_penalty(const Settled& before) const;

  Options options_;
  double moved_ = 0;         // |x_t - x_(t-1)|
  double highest_rate_ = 0;  // gamma_0
};

/// One outer step: m <- beta m + d / penalty, x <- x - alpha clip(m). d: (n,), overwritten; m:
/// (n,), or empty if beta is 0. clip 0: none. RETURNS: the distance by which x has moved.
/// DETERMINISM: each operation is rounded once.
double co2_step(const kernels::OuterStep& step, float penalty, float clip, std::span<float> x,
                std::span<float> d, std::span<float> m);

}  // namespace isthmus::outer
