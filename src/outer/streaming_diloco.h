// SPDX-License-Identifier: Apache-2.0
// Streaming DiLoCo (arXiv:2501.18512 Alg. 2) in general form; DiLoCo (arXiv:2311.08105 Alg. 1) and
// local SGD are configurations of it: one fragment, no overlap, alpha 0.
//   each inner step t:
//     theta_m <- InnerOpt(theta_m)
//     fragments with t = offset_p (mod H):       Delta_m,p = anchor_p - theta_m,p ; launch its mean
//     fragments sent at t - tau:                  anchor_p <- OuterOpt(anchor_p, mean Delta_p)
//                                                 theta_m,p <- alpha theta_m,p + (1 - alpha)
//                                                 anchor_p
// With late = "slip" a round whose result is not there at t - tau is applied after the first later
// step that finds it there, at the latest before its fragment is sent again: then it is waited for.
// Anchors are functions of the order of each fragment's rounds, which stays as it is.
// Deviation from the paper's text: Delta is against the last outer result before mixing (shared by
// all), not against the worker's own mixed value; torchft and MaxText do the same.
#pragma once

#include <memory>
#include <vector>

#include "isthmus/outer.h"
#include "outer/late_rounds.h"
#include "outer/norm_guard.h"
#include "outer/outer_fragment.h"
#include "outer/own_work.h"
#include "outer/rounds.h"
#include "outer/settings.h"

namespace isthmus::outer {

class StreamingDiLoCo final : public OuterStrategy, public LateRounds, public CarriesWork {
 public:
  /// `make` says where the fragments are kept.
  StreamingDiLoCo(FragmentedSettings settings, InnerLoop& inner, Exchange& exchange,
                  const FragmentMaker& make);

  StepReport step() override;
  std::vector<RoundReport> finish() override;
  [[nodiscard]] StepIndex steps() const override { return steps_; }
  [[nodiscard]] std::span<const float> values(std::size_t parameter) const override;
  void save(StateWriter& writer) const override;
  void load(StateReader& reader) override;
  void forget_own_work() override;
  [[nodiscard]] std::vector<RoundReport> apply_late() override;
  [[nodiscard]] OwnWork own_work() const override;
  [[nodiscard]] std::span<const Fragment> fragments() const override { return settings_.fragments; }
  [[nodiscard]] bool carries() const override {
    return settings_.carry == LostContribution::kCarry;
  }
  [[nodiscard]] Kept carry(const OwnWork& work) override;

 private:
  /// Where a parameter's anchor lies.
  struct Place {
    std::size_t fragment = 0;
    std::size_t begin = 0;
    std::size_t size = 0;
  };

  void send(const Sync& sync);
  /// Settles and applies what is due by `due`, oldest first, waiting for it or not; it is step
  /// `now`.
  void apply_due(StepIndex due, LateRound late, StepIndex now, std::vector<RoundReport>& reports);
  [[nodiscard]] RoundReport apply(const Settled& round, StepIndex now);
  void settle_residual(const Settled& round);
  /// What is left to do where this worker's contribution was not counted.
  void apply_without_own(const Settled& round);
  [[nodiscard]] OuterFragment& state(FragmentId id);

  FragmentedSettings settings_;
  InnerLoop& inner_;
  std::vector<std::unique_ptr<OuterFragment>> fragments_;
  std::vector<Place> places_;  // by parameter
  Rounds rounds_;
  NormGuard guard_;
  StepIndex steps_;
  StepIndex trained_;  // the last inner step: `steps_`, or the one whose round has failed
};

}  // namespace isthmus::outer
