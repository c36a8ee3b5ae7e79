// SPDX-License-Identifier: Apache-2.0
// A rate limit for all that a member sends, over all its links. A token bucket that holds kCatchUp
// of the rate, for a caller that checks late. Pure; one task.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>

#include "isthmus/types.h"

namespace isthmus {

class SendBudget {
 public:
  /// `bits_per_s` 0: no limit.
  explicit SendBudget(double bits_per_s) : bits_per_s_(bits_per_s) {}
  /// Changes the rate from now on; bytes not yet paid for are paid at the new rate.
  void set_rate(TimePoint now, double bits_per_s) {
    if (bits_per_s == bits_per_s_) return;
    if (opens_ > now) {  // so there was a rate
      const double times = bits_per_s == 0 ? 0 : bits_per_s_ / bits_per_s;
      opens_ = now + std::chrono::duration_cast<Duration>(
                         times * std::chrono::duration<double>(opens_ - now));
    }
    bits_per_s_ = bits_per_s;
  }

  /// Whether a frame of any size may be sent; a large one is paid for afterwards.
  [[nodiscard]] bool open(TimePoint now) const { return bits_per_s_ == 0 || opens_ <= now; }
  /// When it opens next.
  [[nodiscard]] TimePoint opens() const { return opens_; }
  void spend(TimePoint now, std::size_t bytes) {
    if (bits_per_s_ == 0) return;
    const std::chrono::duration<double> takes(static_cast<double>(bytes) * 8 / bits_per_s_);
    opens_ = std::max(opens_, now - kCatchUp) + std::chrono::duration_cast<Duration>(takes);
  }

 private:
  static constexpr Duration kCatchUp = std::chrono::milliseconds(20);
  double bits_per_s_;
  TimePoint opens_ = TimePoint::min() + kCatchUp;
};

}  // namespace isthmus
