// SPDX-License-Identifier: Apache-2.0
// The common part of methods whose only fragment is the whole model and whose workers all hold its
// anchor: an inner step with its count, a round after every H steps, values and checkpoint. A
// method says what a round is and how the run ends. One thread.
#pragma once

#include <vector>

#include "isthmus/outer.h"
#include "outer/parts/fragment_state.h"
#include "outer/parts/norm_guard.h"
#include "outer/parts/rounds.h"
#include "outer/parts/settings.h"

namespace isthmus::outer {

class WholeModel : public OuterStrategy {
 public:
  StepReport step() final;
  [[nodiscard]] StepIndex steps() const final { return steps_; }
  [[nodiscard]] StepIndex next_use() const final {
    return StepIndex((steps_.value() / H() + 1) * H());
  }
  [[nodiscard]] std::span<const float> values(std::size_t parameter) const final;
  void save(StateWriter& writer) const override;
  void load(StateReader& reader) override;
  void forget_own_work() final;

 protected:
  static constexpr FragmentId kWhole{0};

  /// behind: rounds that end between the sending of a round and its use. feedback_decay: as
  /// FragmentState's.
  WholeModel(FragmentedSettings settings, InnerLoop& inner, Exchange& exchange, int behind,
             float feedback_decay = 1);

  /// Called after the inner steps of a round; it adds what it has to report to `reports`.
  virtual void end_round() = 0;
  /// What a checkpoint has to agree with.
  [[nodiscard]] virtual Identity identity() const;
  /// Delta, and whether it is fit; `more` is added to it. If Delta is not finite, the inner
  /// optimizer's moments, which are then not finite either, are reset.
  [[nodiscard]] OuterGradient fresh_gradient(std::span<const float> more);

  [[nodiscard]] std::int64_t H() const { return settings_.schedule.H(); }
  [[nodiscard]] FragmentState& state() { return state_; }
  [[nodiscard]] Rounds& rounds() { return rounds_; }
  [[nodiscard]] const Rounds& rounds() const { return rounds_; }
  /// Of the step under way.
  [[nodiscard]] std::vector<RoundReport>& reports() { return reports_; }
  [[nodiscard]] const FragmentedSettings& settings() const { return settings_; }
  [[nodiscard]] const InnerLoop& inner() const { return inner_; }
  [[nodiscard]] const Exchange& exchange() const { return exchange_; }

 private:
  FragmentedSettings settings_;
  InnerLoop& inner_;
  Exchange& exchange_;
  FragmentState state_;
  Rounds rounds_;
  NormGuard guard_;
  std::vector<std::size_t> begins_;  // of the parameters in the fragment
  std::vector<RoundReport> reports_;
  StepIndex steps_;
};

}  // namespace isthmus::outer
