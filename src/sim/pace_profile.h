// SPDX-License-Identifier: Apache-2.0
// The computing speed of a site over time: pauses and slow periods. Plain value.
#pragma once

#include <vector>

#include "isthmus/types.h"

namespace isthmus {

class PaceProfile {
 public:
  struct Step {
    TimePoint from;
    double pace = 1;  // share of its speed, until the next step; 0: paused
    bool operator==(const Step&) const = default;
  };

  /// Always full speed.
  PaceProfile() = default;
  /// Full speed before the first step.
  /// THROWS: ConfigError unless the times rise, paces lie in [0, 1] and the last is above 0.
  explicit PaceProfile(std::vector<Step> steps);

  /// When work is done that begins at `begin` and takes `work` at full speed. Exact to the
  /// nanosecond if the pace is 0 or 1.
  [[nodiscard]] TimePoint done(TimePoint begin, Duration work) const;
  /// The part of [begin, end) with pace 0.
  [[nodiscard]] Duration stood_still(TimePoint begin, TimePoint end) const;
  [[nodiscard]] const std::vector<Step>& steps() const { return steps_; }

 private:
  std::vector<Step> steps_;
};

}  // namespace isthmus
