// SPDX-License-Identifier: Apache-2.0
#include "sim/rate_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/check.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

/// The last of `steps` that has begun at `time`, as the place behind it.
template <typename Steps>
auto after(const Steps& steps, TimePoint time) {
  return std::upper_bound(steps.begin(), steps.end(), time,
                          [](TimePoint t, const auto& step) { return t < step.from; });
}

}  // namespace

RateProfile::RateProfile(std::vector<Step> steps)
    : steps_(std::make_shared<const std::vector<Step>>(std::move(steps))) {
  const std::vector<Step>& given = *steps_;
  if (given.empty()) {
    throw ConfigError("rate profile: no steps; give at least one time and rate");
  }
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (given[i].bits_per_s < 0) {
      throw ConfigError(fmt::format("rate profile, step {}: rate {} bit/s is negative", i + 1,
                                    given[i].bits_per_s));
    }
    if (i > 0 && given[i].from <= given[i - 1].from) {
      throw ConfigError(
          fmt::format("rate profile, step {}: its time must be later than the one before", i + 1));
    }
  }
  if (given.back().bits_per_s == 0) {
    throw ConfigError(
        "rate profile: the last rate is 0, so nothing would ever arrive; end with a rate above 0");
  }
}

RateProfile RateProfile::of_trace(const LinkTrace& trace, bool up, Duration begun) {
  std::vector<Step> steps;
  for (const LinkTrace::Step& step : trace.steps) {
    const double rate = up ? step.bits_per_s_up : step.bits_per_s_down;
    steps.push_back({TimePoint(step.from), std::llround(rate)});
  }
  RateProfile profile(std::move(steps));
  profile.period_ = trace.period;
  profile.begun_ = begun;
  return profile;
}

RateProfile RateProfile::outage(std::int64_t bits_per_s, TimePoint begin, TimePoint end) {
  std::vector<Step> steps;
  if (begin > TimePoint{}) steps.push_back({TimePoint{}, bits_per_s});
  steps.push_back({begin, 0});
  steps.push_back({end, bits_per_s});
  return RateProfile(std::move(steps));
}

RateProfile RateProfile::overridden(std::vector<Override> overrides) const {
  for (std::size_t i = 1; i < overrides.size(); ++i) {
    ISTHMUS_CHECK(overrides[i - 1].from < overrides[i].from, i);
  }
  ISTHMUS_CHECK(overrides.empty() || !overrides.back().bits_per_s, overrides.size());
  RateProfile profile = *this;
  profile.overrides_ = std::move(overrides);
  return profile;
}

TimePoint RateProfile::step_time(TimePoint time) const {
  const TimePoint shown = time + begun_;
  return period_ == Duration{0} ? shown : TimePoint(shown.time_since_epoch() % period_);
}

std::int64_t RateProfile::rate_at(TimePoint time) const {
  const auto override = after(overrides_, time);
  if (override != overrides_.begin() && std::prev(override)->bits_per_s) {
    return *std::prev(override)->bits_per_s;
  }
  const auto step = after(*steps_, step_time(time));
  return step == steps_->begin() ? steps_->front().bits_per_s : std::prev(step)->bits_per_s;
}

TimePoint RateProfile::next_change(TimePoint time) const {
  const TimePoint now = step_time(time);
  const auto step = after(*steps_, now);
  TimePoint next = kNever;
  if (step != steps_->end()) {
    next = time + (step->from - now);
  } else if (period_ > Duration{0}) {
    next = time + (TimePoint(period_) - now);
  }
  const auto override = after(overrides_, time);
  return override == overrides_.end() ? next : std::min(next, override->from);
}

std::int64_t RateProfile::highest() const {
  return std::ranges::max_element(*steps_, {}, &Step::bits_per_s)->bits_per_s;
}

}  // namespace isthmus
