// SPDX-License-Identifier: Apache-2.0
// When a site that was cut off comes back: at once, and after pauses that grow where it is cut off
// again and again soon after. A way that passes handshakes and notes but no values lets it in each
// time, and each time the others begin their round anew. Pure; one task.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

#include "isthmus/types.h"

namespace isthmus::app {

class ReturnPace {
 public:
  static constexpr Duration kFirst = std::chrono::seconds(10);
  static constexpr Duration kLongest = std::chrono::minutes(10);
  /// Who has been in the run for so long has been in it: as long as the longest pause.
  static constexpr Duration kSoon = kLongest;

  /// The site was cut off at `now`. RETURNS: how long it waits before it comes back.
  [[nodiscard]] Duration pause(TimePoint now) {
    const bool soon = back_ && now - *back_ < kSoon;
    pause_ = !soon ? Duration{0} : std::clamp(2 * pause_, kFirst, kLongest);
    back_ = now + pause_;
    return pause_;
  }

 private:
  std::optional<TimePoint> back_;  // since when it was, the last time
  Duration pause_{0};
};

}  // namespace isthmus::app
