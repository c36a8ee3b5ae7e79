// SPDX-License-Identifier: Apache-2.0
// A link's line rate over time: recorded traces, outages. Plain value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "isthmus/types.h"

namespace isthmus {

class RateProfile {
 public:
  struct Step {
    TimePoint from;
    std::int64_t bits_per_s = 0;  // until the next step; 0: nothing leaves
    bool operator==(const Step&) const = default;
  };

  /// THROWS: ConfigError unless the times rise, no rate is negative and the last rate is positive
  /// (a link that never comes back is a fault, not a rate).
  explicit RateProfile(std::vector<Step> steps);
  /// Lines "seconds,bits_per_s"; a first line of names and empty lines are skipped.
  /// THROWS: ConfigError naming `label` and the line.
  [[nodiscard]] static RateProfile parse_csv(std::string_view text, const std::string& label);
  /// `bits_per_s` but for [begin, end), when nothing leaves.
  [[nodiscard]] static RateProfile outage(std::int64_t bits_per_s, TimePoint begin, TimePoint end);

  /// Before the first step: the first step's rate.
  [[nodiscard]] std::int64_t rate_at(TimePoint time) const;
  /// The first change after `time`, or kNever.
  [[nodiscard]] TimePoint next_change(TimePoint time) const;
  [[nodiscard]] const std::vector<Step>& steps() const { return steps_; }

 private:
  std::vector<Step> steps_;
};

}  // namespace isthmus
