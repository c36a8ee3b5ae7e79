// SPDX-License-Identifier: Apache-2.0
// The deadline of a round: how late a member may begin it before it is begun by proxy. A fixed
// time, or adapted to this member's previous rounds. With x the last 32 delays from "enough other
// members had begun" to this member's begin (0 if it began earlier),
//   D = median(x) + max(1 s, 4 median(|x - median(x)|)), at most `longest`,
// and `longest` until there are four delays. So a member that is always a little late is waited
// for, and a member that hangs is not; 16 of 32 rounds adapt D to a new pace. The median of an even
// number of values is the greater middle one.
// Pure.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <optional>

#include "isthmus/runtime.h"
#include "isthmus/transport.h"

namespace isthmus {

class RoundDeadline {
 public:
  /// A fixed deadline.
  explicit RoundDeadline(Duration fixed) : fixed_(fixed), longest_(fixed) {}
  /// An adaptive deadline.
  [[nodiscard]] static RoundDeadline adaptive(Duration longest);

  [[nodiscard]] Duration get() const;
  /// This member began a round `late` after enough other members had.
  void began(Duration late);

 private:
  static constexpr std::size_t kRounds = 32;
  static constexpr std::size_t kFewest = 4;
  Duration fixed_;  // 0: adaptive
  Duration longest_;
  std::deque<Duration> late_;  // of the last rounds
};

/// A round that other members have begun, and this member has not.
struct RoundAhead {
  /// The members that have begun it, and the round that each began before it.
  std::map<WorkerId, std::optional<SyncId>> begun;
  std::optional<SyncId> before;  // the round before it that enough members name
  int others = 0;                // members that name it
  std::optional<TimePoint> enough_since;
  TimePoint due;  // the deadline, if enough_since is set
};

/// A round that was begun by proxy: in this member's name, without its values.
struct ProxyRound {
  SyncId id;
  Duration late{0};  // since enough others had begun it
  int others = 0;
};

}  // namespace isthmus
