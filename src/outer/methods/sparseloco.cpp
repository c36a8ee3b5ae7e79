// SPDX-License-Identifier: Apache-2.0
#include "outer/methods/sparseloco.h"

#include <fmt/format.h>

#include <utility>

#include "outer/parts/clipped_mean.h"

namespace isthmus::outer {
namespace {

FragmentedSettings collecting(FragmentedSettings settings) {
  settings.exchange = ReductionKind::kCollect;
  return settings;
}

}  // namespace

SparseLoCo::SparseLoCo(FragmentedSettings settings, float error_decay, InnerLoop& inner,
                       Exchange& exchange)
    : WholeModel(collecting(std::move(settings)), inner, exchange, 0, error_decay),
      error_decay_(error_decay) {}

void SparseLoCo::end_round() {
  rounds().launch({kWhole, steps(), steps()}, fresh_gradient({}), 1);
  const Settled settled = rounds().settle_oldest();
  if (settled.lost) {
    state().take_back(*settings().codec, settled.own);
  }
  const ClippedMean mean = clipped_mean(*settings().codec, settled.contributions, state().size());
  if (mean.used > 0) {
    state().step(mean.values);
  }
  state().merge(0);  // a window that is not fit is given up
  RoundReport report = settled.report;
  report.applied = steps();
  report.members = mean.used;
  report.delta_norm = l2_norm(mean.values);
  if (report.counted && mean.used > 0) report.cosine = settled.sample.cosine(mean.values);
  reports().push_back(report);
}

std::vector<RoundReport> SparseLoCo::finish() {
  // Nothing is in flight; the closing round is of the steps since the last one.
  if (settings().final_sync != FinalSync::kFull || rounds().last_sent(kWhole) == steps()) {
    return {};
  }
  rounds().count_partial_windows();
  end_round();
  reports().front().closing = true;
  rounds().warn_of_losses(reports());
  return std::exchange(reports(), {});
}

Identity SparseLoCo::identity() const {
  Identity identity = WholeModel::identity();
  identity.emplace_back("error_decay", fmt::format("{}", error_decay_));
  return identity;
}

}  // namespace isthmus::outer
