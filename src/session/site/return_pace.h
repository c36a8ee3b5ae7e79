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

  /// `gather`: for how long sites wait for one another; no pause is longer than half of it, since
  /// the others may wait for this one.
  explicit ReturnPace(Duration gather) : longest_(std::min(kLongest, gather / 2)) {}

  /// The site was cut off at `now`. RETURNS: how long it waits before it comes back. Who has been
  /// in the run for as long as the longest pause has been in it, and comes back at once.
  [[nodiscard]] Duration pause(TimePoint now) {
    const bool soon = back_ && now - *back_ < longest_;
    pause_ = soon ? std::min(std::max(2 * pause_, kFirst), longest_) : Duration{0};
    back_ = now + pause_;
    return pause_;
  }

 private:
  Duration longest_;
  std::optional<TimePoint> back_;  // since when it was, the last time
  Duration pause_{0};
};

}  // namespace isthmus::app
