// SPDX-License-Identifier: Apache-2.0
#include "outer/methods/one_round_behind.h"

#include <cmath>
#include <utility>

#include "core/base/check.h"
#include "isthmus/errors.h"
#include "outer/parts/start_check.h"

namespace isthmus::outer {
namespace {

constexpr FragmentId kWhole(0);

}  // namespace

OneRoundBehind::OneRoundBehind(FragmentedSettings settings, InnerLoop& inner, Exchange& exchange)
    : settings_(std::move(settings)),
      inner_(inner),
      exchange_(exchange),
      state_(settings_.fragments.at(0), inner, settings_.optimizer,
             settings_.codec->error_feedback()),
      rounds_(settings_, exchange, H()),
      guard_(1, settings_.outlier) {
  ISTHMUS_CHECK(settings_.fragments.size() == 1, settings_.fragments.size());
  std::size_t begin = 0;
  for (const Parameter& parameter : inner.parameters()) {
    begins_.push_back(begin);
    begin += parameter.values.size();
  }
}

StepReport OneRoundBehind::step() {
  const StepIndex t(steps_.value() + 1);
  if (t == StepIndex(1)) agree_on_parameters(inner_, exchange_);
  StepReport report{.step = t, .inner = inner_.train_step(t), .rounds = {}};
  rounds_.count(report.inner);
  steps_ = t;
  if (t.value() % H() == 0) {
    end_round();
  }
  report.rounds = std::exchange(reports_, {});
  return report;
}

std::vector<RoundReport> OneRoundBehind::finish() {
  if (settings_.final_sync == FinalSync::kNone) {
    rounds_.drop();
    return {};
  }
  const bool open = rounds_.last_sent(kWhole) != steps_;
  if (settings_.final_sync == FinalSync::kFull && open) {
    rounds_.count_partial_windows();
    close_round();
    if (!reports_.empty() && reports_.back().sent == steps_) reports_.back().closing = true;
  } else if (settings_.final_sync == FinalSync::kFull) {
    settle_last();
  } else {
    drain();
  }
  rounds_.drop();
  if (settings_.final_sync == FinalSync::kFull) rounds_.warn_of_losses(reports_);
  return std::exchange(reports_, {});
}

std::optional<Settled> OneRoundBehind::receive() {
  if (rounds_.empty()) {
    return std::nullopt;
  }
  Settled settled = rounds_.settle_oldest();
  settled.report.applied = steps_;
  reports_.push_back(settled.report);
  return settled;
}

OuterGradient OneRoundBehind::outer_gradient(const std::optional<Settled>& before) {
  std::vector<float> lost;
  if (before && before->lost && settings_.carry == LostContribution::kCarry) {
    rounds_.carry_window(*before);
    if (settings_.codec->error_feedback()) {
      state_.take_back(*settings_.codec, before->own);
    } else {
      lost = own_part(*before);
    }
  }
  OuterGradient delta = state_.outer_gradient(
      *settings_.codec, rounds_.key(kWhole, steps_),
      [&](double norm) { return guard_.accepts(kWhole, norm); }, lost);
  if (!std::isfinite(delta.norm)) {
    inner_.reset_optimizer();
  }
  return delta;
}

void OneRoundBehind::launch(OuterGradient delta, double weight) {
  rounds_.launch({kWhole, steps_, StepIndex(steps_.value() + H())}, std::move(delta), weight);
}

double OneRoundBehind::window_weight() const { return rounds_.window(kWhole).weight(); }

std::vector<float> OneRoundBehind::own_part(const Settled& settled) const {
  std::vector<float> own(settled.own.values);
  const Expected<void, DecodeError> decoded = decode(*settings_.codec, settled.own.bytes, own);
  if (!decoded) {  // a checkpoint's bytes, since ours were encoded here
    throw RunError("own contribution in flight does not decode: " + decoded.error().what);
  }
  return own;
}

std::span<const float> OneRoundBehind::values(std::size_t parameter) const {
  return state_.anchor().subspan(begins_.at(parameter),
                                 inner_.parameters()[parameter].values.size());
}

void OneRoundBehind::save(StateWriter& writer) const {
  save_identity(identity_of(settings_, inner_.parameters()), writer);
  writer.integer("step", steps_.value());
  state_.save(writer);
  guard_.save(writer);
  rounds_.save(writer);
}

void OneRoundBehind::load(StateReader& reader) {
  check_identity(identity_of(settings_, inner_.parameters()), reader);
  steps_ = StepIndex(reader.integer("step"));
  state_.load(reader);
  guard_.load(reader);
  rounds_.load(reader, steps_);
}

void OneRoundBehind::forget_own_work() {
  state_.forget_own_work();
  rounds_.forget_own_work(steps_);
}

}  // namespace isthmus::outer
