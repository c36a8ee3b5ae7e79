// SPDX-License-Identifier: Apache-2.0
#include "outer/methods/whole_model.h"

#include <cmath>
#include <utility>

#include "core/base/check.h"
#include "outer/parts/start_check.h"

namespace isthmus::outer {

WholeModel::WholeModel(FragmentedSettings settings, InnerLoop& inner, Exchange& exchange,
                       int behind, float feedback_decay)
    : settings_(std::move(settings)),
      inner_(inner),
      exchange_(exchange),
      state_(settings_.fragments.at(0), inner, settings_.optimizer,
             settings_.codec->error_feedback(), feedback_decay),
      rounds_(settings_, exchange, behind * H()),
      guard_(1, settings_.outlier) {
  ISTHMUS_CHECK(settings_.fragments.size() == 1, settings_.fragments.size());
  std::size_t begin = 0;
  for (const Parameter& parameter : inner.parameters()) {
    begins_.push_back(begin);
    begin += parameter.values.size();
  }
}

StepReport WholeModel::step() {
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

OuterGradient WholeModel::fresh_gradient(std::span<const float> more) {
  OuterGradient delta = state_.outer_gradient(
      *settings_.codec, rounds_.key(kWhole, steps_),
      [&](double norm) { return guard_.accepts(kWhole, norm); }, more);
  if (!std::isfinite(delta.norm)) {
    inner_.reset_optimizer();
  }
  return delta;
}

std::span<const float> WholeModel::values(std::size_t parameter) const {
  return state_.anchor().subspan(begins_.at(parameter),
                                 inner_.parameters()[parameter].values.size());
}

Identity WholeModel::identity() const { return identity_of(settings_, inner_.parameters()); }

void WholeModel::save(StateWriter& writer) const {
  save_identity(identity(), writer);
  writer.integer("step", steps_.value());
  state_.save(writer);
  guard_.save(writer);
  rounds_.save(writer);
}

void WholeModel::load(StateReader& reader) {
  check_identity(identity(), reader);
  steps_ = StepIndex(reader.integer("step"));
  state_.load(reader);
  guard_.load(reader);
  rounds_.load(reader, steps_);
}

void WholeModel::forget_own_work() {
  state_.forget_own_work();
  rounds_.forget_own_work(steps_);
}

}  // namespace isthmus::outer
