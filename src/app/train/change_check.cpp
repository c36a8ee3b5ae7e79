// SPDX-License-Identifier: Apache-2.0
#include "app/train/change_check.h"

#include <fmt/format.h>

#include <string>

#include "inner/model/schedule.h"
#include "session/checks/change_check.h"

namespace isthmus::app {
namespace {

/// The way out of rates that would have been others.
std::string rate_remedy(const Config& from, std::int64_t before) {
  std::string text;
  for (const auto& [key, span] :
       {std::pair{"inner.warmup", from.inner.warmup}, {"inner.decay", from.inner.decay}}) {
    if (!span.fraction || *span.fraction == 0) continue;
    text += fmt::format("add --change {}={}, which it was in steps, ", key, span.resolve(before));
  }
  return text +
         "go on from an earlier checkpoint (--resume PATH), give runs that may grow "
         "inner.schedule = \"constant\" or \"wsd\", or " +
         "start a new run from its model with model.init";
}

/// The steps taken have had the rates that they would have under `to`; else the first that had not.
std::optional<UnfitRates> unfit_rates(const Config& from, const Config& to, std::int64_t steps) {
  const std::int64_t before = total_steps(from);
  InnerConfig shape = to.inner;  // its peak and floor may change
  shape.lr = from.inner.lr;
  shape.floor = from.inner.floor;
  const LearningRateSchedule had(from.inner, before);
  const LearningRateSchedule would(shape, total_steps(to));
  for (std::int64_t t = 1; t <= steps; ++t) {
    if (had.at(StepIndex(t)) == would.at(StepIndex(t))) continue;
    return UnfitRates{
        .why = fmt::format("under inner.schedule = \"{}\" the rate of step {}, which was {}, would "
                           "have been {}",
                           to.inner.schedule, t, had.at(StepIndex(t)), would.at(StepIndex(t))),
        .remedy = rate_remedy(from, before)};
  }
  return std::nullopt;
}

}  // namespace

void check_change(const Config& from, const Config& to, std::int64_t steps) {
  check_change(from, to, steps, {.by_argument = false, .rates = unfit_rates});
}

}  // namespace isthmus::app
