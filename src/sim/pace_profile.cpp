// SPDX-License-Identifier: Apache-2.0
#include "sim/pace_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "isthmus/errors.h"

namespace isthmus {

PaceProfile::PaceProfile(std::vector<Step> steps) : steps_(std::move(steps)) {
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    if (!(steps_[i].pace >= 0 && steps_[i].pace <= 1)) {
      throw ConfigError(
          fmt::format("pace profile, step {}: pace {} must be in [0, 1]", i + 1, steps_[i].pace));
    }
    if (i > 0 && steps_[i].from <= steps_[i - 1].from) {
      throw ConfigError(
          fmt::format("pace profile, step {}: its time must be later than the one before", i + 1));
    }
  }
  if (!steps_.empty() && steps_.back().pace == 0) {
    throw ConfigError("pace profile: the last pace is 0, so nothing would ever be done");
  }
}

TimePoint PaceProfile::done(TimePoint begin, Duration work) const {
  auto next = std::ranges::upper_bound(steps_, begin, {}, &Step::from);
  double pace = next == steps_.begin() ? 1 : std::prev(next)->pace;
  TimePoint time = begin;
  for (; next != steps_.end(); ++next) {
    const Duration piece = next->from - time;
    const Duration done =
        pace == 1 ? piece : Duration(std::llround(static_cast<double>(piece.count()) * pace));
    if (work <= done) break;
    work -= done;
    time = next->from;
    pace = next->pace;
  }
  if (pace == 1 || work == Duration{0}) return time + work;
  return time + Duration(std::llround(static_cast<double>(work.count()) / pace));
}

Duration PaceProfile::stood_still(TimePoint begin, TimePoint end) const {
  Duration sum{0};
  for (std::size_t i = 0; i + 1 < steps_.size(); ++i) {
    if (steps_[i].pace > 0) continue;
    const Duration overlap = std::min(end, steps_[i + 1].from) - std::max(begin, steps_[i].from);
    sum += std::max(overlap, Duration{0});
  }
  return sum;
}

}  // namespace isthmus
