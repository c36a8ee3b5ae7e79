// SPDX-License-Identifier: Apache-2.0
#include "outer/methods/sparseloco.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "core/base/check.h"
#include "outer/parts/clipped_mean.h"
#include "outer/parts/start_check.h"

namespace isthmus::outer {
namespace {

constexpr FragmentId kWholeModel(0);

FragmentedSettings collecting(FragmentedSettings settings) {
  settings.exchange = ReductionKind::kCollect;
  return settings;
}

}  // namespace

SparseLoCo::SparseLoCo(FragmentedSettings settings, float error_decay, InnerLoop& inner,
                       Exchange& exchange)
    : settings_(collecting(std::move(settings))),
      error_decay_(error_decay),
      inner_(inner),
      state_(settings_.fragments.at(0), inner, settings_.optimizer,
             settings_.codec->error_feedback(), error_decay),
      rounds_(settings_, exchange, 0),
      guard_(1, settings_.outlier) {
  ISTHMUS_CHECK(settings_.fragments.size() == 1, settings_.fragments.size());
  std::size_t begin = 0;
  for (const Parameter& parameter : inner.parameters()) {
    begins_.push_back(begin);
    begin += parameter.values.size();
  }
}

StepReport SparseLoCo::step() {
  const StepIndex t(steps_.value() + 1);
  if (t == StepIndex(1)) agree_on_parameters(inner_, rounds_.exchange());
  StepReport report{.step = t, .inner = inner_.train_step(t), .rounds = {}};
  rounds_.count(report.inner);
  steps_ = t;
  if (t.value() % settings_.schedule.H() == 0) {
    report.rounds.push_back(round());
  }
  return report;
}

RoundReport SparseLoCo::round() {
  OuterGradient delta =
      state_.outer_gradient(*settings_.codec, rounds_.key(kWholeModel, steps_),
                            [&](double norm) { return guard_.accepts(kWholeModel, norm); });
  if (!std::isfinite(delta.norm)) {
    inner_.reset_optimizer();
  }
  rounds_.launch({kWholeModel, steps_, steps_}, std::move(delta), 1);
  const Settled settled = rounds_.settle_oldest();
  if (settled.lost) {
    state_.take_back(*settings_.codec, settled.own);
  }
  const ClippedMean mean = clipped_mean(*settings_.codec, settled.contributions, state_.size());
  if (mean.used > 0) {
    state_.step(mean.values);
  }
  state_.merge(0);  // a window that is not fit is given up
  RoundReport report = settled.report;
  report.applied = steps_;
  report.members = mean.used;
  report.delta_norm = l2_norm(mean.values);
  if (report.counted && mean.used > 0) report.cosine = settled.sample.cosine(mean.values);
  return report;
}

std::vector<RoundReport> SparseLoCo::finish() {
  // Nothing is in flight; the closing round is of the steps since the last one.
  if (settings_.final_sync != FinalSync::kFull || rounds_.last_sent(kWholeModel) == steps_) {
    return {};
  }
  rounds_.count_partial_windows();
  std::vector<RoundReport> reports = {round()};
  reports.front().closing = true;
  rounds_.warn_of_losses(reports);
  return reports;
}

std::span<const float> SparseLoCo::values(std::size_t parameter) const {
  return state_.anchor().subspan(begins_.at(parameter),
                                 inner_.parameters()[parameter].values.size());
}

Identity SparseLoCo::identity() const {
  Identity identity = identity_of(settings_, inner_.parameters());
  identity.emplace_back("error_decay", fmt::format("{}", error_decay_));
  return identity;
}

void SparseLoCo::save(StateWriter& writer) const {
  save_identity(identity(), writer);
  writer.integer("step", steps_.value());
  state_.save(writer);
  guard_.save(writer);
  rounds_.save(writer);
}

void SparseLoCo::load(StateReader& reader) {
  check_identity(identity(), reader);
  steps_ = StepIndex(reader.integer("step"));
  state_.load(reader);
  guard_.load(reader);
  rounds_.load(reader, steps_);
}

void SparseLoCo::forget_own_work() {
  state_.forget_own_work();
  rounds_.forget_own_work(steps_);
}

}  // namespace isthmus::outer
