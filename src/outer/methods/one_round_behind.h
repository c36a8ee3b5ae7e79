// SPDX-License-Identifier: Apache-2.0
// The common part of `delayed`, `eager` and `co2`: each round of H inner steps starts from the
// anchor; its outer gradient is exchanged during the next round and applied at the end of that
// round. A method implements the end of a round, in its paper's order; this class takes the inner
// steps, keeps windows and reports, and ends the run.
// The whole model is one fragment. One thread.
#pragma once

#include <optional>
#include <vector>

#include "isthmus/outer.h"
#include "outer/parts/fragment_state.h"
#include "outer/parts/norm_guard.h"
#include "outer/parts/rounds.h"
#include "outer/parts/settings.h"

namespace isthmus::outer {

class OneRoundBehind : public OuterStrategy {
 public:
  OneRoundBehind(FragmentedSettings settings, InnerLoop& inner, Exchange& exchange);

  StepReport step() final;
  std::vector<RoundReport> finish() final;
  [[nodiscard]] StepIndex steps() const final { return steps_; }
  [[nodiscard]] StepIndex next_use() const override {
    return StepIndex((steps_.value() / H() + 1) * H());
  }
  [[nodiscard]] std::span<const float> values(std::size_t parameter) const final;
  void save(StateWriter& writer) const override;
  void load(StateReader& reader) override;
  void forget_own_work() final;

 protected:
  /// Called after the inner steps of a round.
  virtual void end_round() = 0;
  /// Called for the last round in flight at the end of the run; no round follows.
  virtual void drain() = 0;
  /// As drain, for final_sync = "full" without an open window: every step must be applied.
  virtual void settle_last() { drain(); }
  /// The closing round of the remaining steps: it ends as any other round and is then waited for.
  virtual void close_round() {
    end_round();
    drain();
  }

  /// Waits for the previous round. Absent: there was none.
  [[nodiscard]] std::optional<Settled> receive();
  /// Delta = anchor - local. If LostContribution is kCarry, the lost work of the previous round is
  /// added (local values no longer hold it); with error feedback through the residual, so that an
  /// unfit Delta does not take it along. If Delta is not finite, the inner optimizer's moments,
  /// which are then not finite either, are reset.
  [[nodiscard]] OuterGradient outer_gradient(const std::optional<Settled>& before);
  /// Begins the round.
  void launch(OuterGradient delta, double weight);
  /// Tokens of the round that ends.
  [[nodiscard]] double window_weight() const;

  [[nodiscard]] FragmentState& state() { return state_; }
  [[nodiscard]] const FragmentedSettings& settings() const { return settings_; }
  [[nodiscard]] const InnerLoop& inner() const { return inner_; }
  [[nodiscard]] const Exchange& exchange() const { return exchange_; }
  /// `settled.own` decoded.
  [[nodiscard]] std::vector<float> own_part(const Settled& settled) const;

 private:
  [[nodiscard]] std::int64_t H() const { return settings_.schedule.H(); }

  FragmentedSettings settings_;
  InnerLoop& inner_;
  Exchange& exchange_;
  FragmentState state_;
  Rounds rounds_;
  NormGuard guard_;
  std::vector<std::size_t> begins_;   // of the parameters in the fragment
  std::vector<RoundReport> reports_;  // of the step under way
  StepIndex steps_;
};

}  // namespace isthmus::outer
