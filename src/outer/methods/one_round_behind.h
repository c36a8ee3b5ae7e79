// SPDX-License-Identifier: Apache-2.0
// The common part of `delayed`, `eager` and `co2`: each round of H inner steps starts from the
// anchor; its outer gradient is exchanged during the next round and applied at the end of that
// round. A method implements the end of a round, in its paper's order; this class keeps windows and
// reports, and ends the run. One thread.
#pragma once

#include <optional>
#include <vector>

#include "outer/methods/whole_model.h"

namespace isthmus::outer {

class OneRoundBehind : public WholeModel {
 public:
  OneRoundBehind(FragmentedSettings settings, InnerLoop& inner, Exchange& exchange);

  std::vector<RoundReport> finish() final;

 protected:
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

  /// `settled.own` decoded.
  [[nodiscard]] std::vector<float> own_part(const Settled& settled) const;
};

}  // namespace isthmus::outer
