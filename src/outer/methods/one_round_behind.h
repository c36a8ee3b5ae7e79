// SPDX-License-Identifier: Apache-2.0
// What `delayed`, `eager` and `co2` share: each round of H inner steps starts from the anchor, its
// outer gradient travels during the next round and is applied at the end of that one. A method says
// what happens at the end of a round, in its paper's order; this class takes the inner steps, keeps
// the books and ends the run.
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
  /// What follows the inner steps of a round.
  virtual void end_round() = 0;
  /// The last round, at the end of the run: nothing follows it.
  virtual void drain() = 0;
  /// The same under final_sync = "full", where no window is open: every step is to be applied.
  virtual void settle_last() { drain(); }
  /// The closing round, of the steps left over: it ends as any other and is then awaited.
  virtual void close_round() {
    end_round();
    drain();
  }

  /// The result of the round before, awaited; nothing in the first round.
  [[nodiscard]] std::optional<Settled> receive();
  /// Delta = anchor - local, with what was lost of the round before added where lost work is
  /// carried (the local values it came from are gone). With error feedback that goes by way of the
  /// residual, so that a Delta that is not fit does not take it along. When it is not finite the
  /// inner optimizer's moments, which are then not finite either, are forgotten.
  [[nodiscard]] OuterGradient outer_gradient(const std::optional<Settled>& before);
  /// Sends it on its way.
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
