// SPDX-License-Identifier: Apache-2.0
// Backoff of a site that was cut off: it rejoins at once, and after growing pauses if it is cut off
// again soon. A path that passes handshakes and notes but no values lets the site in each time, and
// each time the others begin their round again. Pure; one task.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

#include "isthmus/types.h"

namespace isthmus::app {

class RejoinBackoff {
 public:
  static constexpr Duration kFirst = std::chrono::seconds(10);
  static constexpr Duration kLongest = std::chrono::minutes(10);

  /// `gather`: the time for which sites wait for one another. No pause is longer than half of it,
  /// since the others may wait for this site.
  explicit RejoinBackoff(Duration gather) : longest_(std::min(kLongest, gather / 2)) {}

  /// The site was cut off at `now`. RETURNS: the pause before it rejoins; 0 if the site had been in
  /// the run for at least the longest pause.
  [[nodiscard]] Duration pause(TimePoint now) {
    const bool soon = back_ && now - *back_ < longest_;
    pause_ = soon ? std::min(std::max(2 * pause_, kFirst), longest_) : Duration{0};
    back_ = now + pause_;
    return pause_;
  }

 private:
  Duration longest_;
  std::optional<TimePoint> back_;  // when it last rejoined
  Duration pause_{0};
};

}  // namespace isthmus::app
