// SPDX-License-Identifier: Apache-2.0
#include "outer/methods/one_round_behind.h"

#include <utility>

namespace isthmus::outer {

OneRoundBehind::OneRoundBehind(FragmentedSettings settings, InnerLoop& inner, Exchange& exchange)
    : WholeModel(std::move(settings), inner, exchange, 1) {}

std::vector<RoundReport> OneRoundBehind::finish() {
  if (settings().final_sync == FinalSync::kNone) {
    rounds().drop();
    return {};
  }
  const bool open = rounds().last_sent(kWhole) != steps();
  if (settings().final_sync == FinalSync::kFull && open) {
    rounds().count_partial_windows();
    close_round();
    if (!reports().empty() && reports().back().sent == steps()) reports().back().closing = true;
  } else if (settings().final_sync == FinalSync::kFull) {
    settle_last();
  } else {
    drain();
  }
  rounds().drop();
  if (settings().final_sync == FinalSync::kFull) rounds().warn_of_losses(reports());
  return std::exchange(reports(), {});
}

std::optional<Settled> OneRoundBehind::receive() {
  if (rounds().empty()) {
    return std::nullopt;
  }
  Settled settled = rounds().settle_oldest();
  settled.report.applied = steps();
  reports().push_back(settled.report);
  return settled;
}

OuterGradient OneRoundBehind::outer_gradient(const std::optional<Settled>& before) {
  std::vector<float> lost;
  if (before && before->lost && settings().carry == LostContribution::kCarry) {
    rounds().carry_window(*before);
    if (settings().codec->error_feedback()) {
      state().take_back(*settings().codec, before->own);
    } else {
      lost = own_part(*before);
    }
  }
  return fresh_gradient(lost);
}

void OneRoundBehind::launch(OuterGradient delta, double weight) {
  rounds().launch({kWhole, steps(), StepIndex(steps().value() + H())}, std::move(delta), weight);
}

double OneRoundBehind::window_weight() const { return rounds().window(kWhole).weight(); }

std::vector<float> OneRoundBehind::own_part(const Settled& settled) const {
  std::vector<float> own(settled.own.values);
  check_own_contribution(decode(*settings().codec, settled.own.bytes, own));
  return own;
}

}  // namespace isthmus::outer
