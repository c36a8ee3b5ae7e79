// SPDX-License-Identifier: Apache-2.0
// Decides when a donor may send a part of its state to a joiner, so that rounds are hardly delayed.
// With a configured rate that rate counts alone. Otherwise the donor sends freely while it has no
// open round. While a round is open it waits for kYield, then sends for kSlot, and so on: a tenth
// of the time, so that a donor with permanent rounds still sends. Pure; one task.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>

#include "isthmus/types.h"
#include "transport/links/send_budget.h"

namespace isthmus {

class DonorThrottle {
 public:
  /// `bits_per_s`: a configured rate, which replaces the rule for rounds.
  explicit DonorThrottle(std::optional<double> bits_per_s)
      : asked_for_(bits_per_s.has_value()), budget_(bits_per_s.value_or(0)) {}

  /// Whether a part may be sent.
  [[nodiscard]] bool open(TimePoint now, bool round_open) {
    if (asked_for_) return budget_.open(now);
    if (round_open && now >= slot_end_ && now < last_ + kYield) return false;
    if (round_open && now >= slot_end_) slot_end_ = now + kSlot;
    last_ = now;
    return true;
  }
  /// When to check again, if no round ends before.
  [[nodiscard]] TimePoint opens() const { return asked_for_ ? budget_.opens() : last_ + kYield; }
  void spend(TimePoint now, std::size_t bytes) { budget_.spend(now, bytes); }

  static constexpr Duration kYield = std::chrono::milliseconds(2000);
  static constexpr Duration kSlot = std::chrono::milliseconds(200);

 private:
  bool asked_for_;
  SendBudget budget_;
  TimePoint last_ = TimePoint::min();      // when it was last open
  TimePoint slot_end_ = TimePoint::min();  // of the last slot within a round
};

}  // namespace isthmus
