// SPDX-License-Identifier: Apache-2.0
// What a member may send in all, over all its links: a rate. A token bucket that holds kCatchUp of
// it, for whoever looks late. Pure; one task.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>

#include "isthmus/types.h"

namespace isthmus {

class SendBudget {
 public:
  /// 0: no bound.
  explicit SendBudget(double bits_per_s) : bits_per_s_(bits_per_s) {}
  /// From now on; what is not paid for yet is paid for at the new rate.
  void set_rate(TimePoint now, double bits_per_s) {
    if (bits_per_s == bits_per_s_) return;
    if (opens_ > now) {  // so there was a rate
      const double times = bits_per_s == 0 ? 0 : bits_per_s_ / bits_per_s;
      opens_ = now + std::chrono::duration_cast<Duration>(
                         times * std::chrono::duration<double>(opens_ - now));
    }
    bits_per_s_ = bits_per_s;
  }

  /// Whether a frame of any size may go; a large one is paid for afterwards.
  [[nodiscard]] bool open(TimePoint now) const { return bits_per_s_ == 0 || opens_ <= now; }
  /// When it is next.
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
