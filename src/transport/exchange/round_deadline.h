// SPDX-License-Identifier: Apache-2.0
// How late a member may begin a round before that is begun in its name, without its work. A fixed
// time, or as this member's rounds of before let expect: with x the last 32 of "it began so long
// after enough others had" (0: before them),
//   D = median(x) + max(1 s, 4 median(|x - median(x)|)), at most `longest`,
// and `longest` until there are four. So who is always a little late is waited for, who hangs is
// not; half of 32 rounds teach it another pace. Medians of an even number are the greater middle.
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
  /// The same always.
  explicit RoundDeadline(Duration fixed) : fixed_(fixed), longest_(fixed) {}
  /// Adapts.
  [[nodiscard]] static RoundDeadline adaptive(Duration longest);

  [[nodiscard]] Duration get() const;
  /// This member has begun a round so long after enough others had.
  void began(Duration late);

 private:
  static constexpr std::size_t kRounds = 32;
  static constexpr std::size_t kFewest = 4;
  Duration fixed_;  // 0: adapts
  Duration longest_;
  std::deque<Duration> late_;  // of the last rounds
};

/// A round that others have begun, and this member has not.
struct RoundAhead {
  /// Who has begun it, and what each of them had begun last.
  std::map<WorkerId, std::optional<SyncId>> begun;
  std::optional<SyncId> before;  // what enough of them name, while they do
  int others = 0;                // who name it
  std::optional<TimePoint> enough_since;
  TimePoint due;  // then
};

/// A round that was begun in this member's name, without its work.
struct ProxyRound {
  SyncId id;
  Duration late{0};  // after so many had begun it
  int others = 0;
};

}  // namespace isthmus
