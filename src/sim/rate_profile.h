// SPDX-License-Identifier: Apache-2.0
// A link's line rate over time: recorded traces, outages. Plain value.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "config/load/link_trace.h"
#include "isthmus/types.h"

namespace isthmus {

class RateProfile {
 public:
  struct Step {
    TimePoint from;
    std::int64_t bits_per_s = 0;  // until the next step; 0: nothing is sent
    bool operator==(const Step&) const = default;
  };

  /// THROWS: ConfigError unless the times ascend, no rate is negative and the last rate is positive
  /// (a link that never returns is a fault, not a rate).
  explicit RateProfile(std::vector<Step> steps);
  /// One direction of a trace. `begun`: the trace's clock at the profile's time 0.
  [[nodiscard]] static RateProfile of_trace(const LinkTrace& trace, bool up, Duration begun);
  /// `bits_per_s`, except in [begin, end), when nothing is sent.
  [[nodiscard]] static RateProfile outage(std::int64_t bits_per_s, TimePoint begin, TimePoint end);

  struct Override {
    TimePoint from;
    std::optional<std::int64_t> bits_per_s;  // until the next one; nothing: the profile's own
  };
  /// The profile with overrides where they give a rate. REQUIRES: ascending times; the last one
  /// gives none.
  [[nodiscard]] RateProfile overridden(std::vector<Override> overrides) const;

  /// Before the first step: the first step's rate.
  [[nodiscard]] std::int64_t rate_at(TimePoint time) const;
  /// The first change after `time`, or kNever.
  [[nodiscard]] TimePoint next_change(TimePoint time) const;
  [[nodiscard]] std::int64_t highest() const;
  [[nodiscard]] const std::vector<Step>& steps() const { return *steps_; }

 private:
  /// Conversion to the steps' clock: the profile's plus `begun_`, within one period.
  [[nodiscard]] TimePoint step_time(TimePoint time) const;

  std::shared_ptr<const std::vector<Step>> steps_;  // shared by all copies: traces are long
  Duration period_{0};  // after which the steps repeat; 0: the last one stays
  Duration begun_{0};
  std::vector<Override> overrides_;
};

}  // namespace isthmus
