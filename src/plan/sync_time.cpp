// SPDX-License-Identifier: Apache-2.0
#include "plan/sync_time.h"

#include <algorithm>
#include <array>

#include "core/base/check.h"
#include "plan/exchange_model.h"

namespace isthmus {
namespace {

constexpr std::array<std::string_view, 2> kWayNames = {"ring", "reduce"};

}  // namespace

std::span<const std::string_view> sync_way_names() { return kWayNames; }

double sync_seconds(const SyncQuestion& question) {
  ISTHMUS_CHECK(question.members >= 2, question.members);
  ISTHMUS_CHECK(question.values >= 1, question.values);
  ISTHMUS_CHECK(question.way == SyncWay::kReduce || question.processor_bits_per_s == 0,
                question.processor_bits_per_s);
  const PredictionInput input{.workers = question.members,
                              .exchange = ReductionKind::kReduce,
                              .codec = question.codec,
                              .links = question.links,
                              .link = question.link,
                              .processor_bits_per_s = question.processor_bits_per_s};
  plan::ExchangeModel model(input);
  const std::vector<plan::PathTime> begin(static_cast<std::size_t>(question.members));
  std::vector<plan::PathTime> whole;
  if (question.way == SyncWay::kRing) {
    whole = model.exchange_along(
        make_ring_plan(*question.codec, static_cast<std::size_t>(question.values),
                       question.members),
        begin);
  } else {
    whole = model.commit(model.exchange(question.values, begin));
  }
  double seconds = 0;
  for (const plan::PathTime& each : whole) seconds = std::max(seconds, each.at);
  return seconds;
}

ComputingShare computing_share(const BlockingRun& run, double seconds) {
  ISTHMUS_CHECK(run.step_s > 0, run.step_s);
  ISTHMUS_CHECK(run.H >= 1, run.H);
  ISTHMUS_CHECK(run.skip >= 0, run.skip);
  ISTHMUS_CHECK(run.skip < run.steps, run.skip, run.steps);
  ISTHMUS_CHECK(seconds >= 0, seconds);
  ComputingShare share{.steps = run.steps - run.skip,
                       .syncs = run.steps / run.H - run.skip / run.H};
  share.compute_s = static_cast<double>(share.steps) * run.step_s;
  share.sync_s = static_cast<double>(share.syncs) * seconds;
  share.share = share.compute_s / (share.compute_s + share.sync_s);
  return share;
}

}  // namespace isthmus
