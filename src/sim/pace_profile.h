// SPDX-License-Identifier: Apache-2.0
// How fast a site computes over time: pauses and slow stretches. Plain value.
#pragma once

#include <vector>

#include "isthmus/types.h"

namespace isthmus {

class PaceProfile {
 public:
  struct Step {
    TimePoint from;
    double pace = 1;  // share of its speed, until the next step; 0: it stands still
    bool operator==(const Step&) const = default;
  };

  /// At full speed always.
  PaceProfile() = default;
  /// Full speed before the first step.
  /// THROWS: ConfigError unless the times rise, paces lie in [0, 1] and the last is above 0.
  explicit PaceProfile(std::vector<Step> steps);

  /// When work that takes `work` at full speed is done that begins at `begin`. To the nanosecond
  /// where the pace is 0 or 1.
  [[nodiscard]] TimePoint done(TimePoint begin, Duration work) const;
  /// How much of [begin, end) has pace 0.
  [[nodiscard]] Duration stood_still(TimePoint begin, TimePoint end) const;
  [[nodiscard]] const std::vector<Step>& steps() const { return steps_; }

 private:
  std::vector<Step> steps_;
};

}  // namespace isthmus
