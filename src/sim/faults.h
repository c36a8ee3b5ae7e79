// SPDX-License-Identifier: Apache-2.0
// Injected faults. Every decision is a function of (seed, link, frame number), so a failing seed
// can be replayed. Plain data and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/rng.h"
#include "isthmus/types.h"

namespace isthmus {

struct FaultPlan {
  // Probabilities for each frame, [0, 1], independent of one another.
  double drop = 0;       // does not arrive
  double delay = 0;      // late, with everything behind it
  double duplicate = 0;  // arrives twice, the second time late
  double reorder = 0;    // late, later frames pass it
  double corrupt = 0;    // one bit is flipped
  /// The delay: uniform up to this.
  Duration longest_delay = std::chrono::milliseconds(50);
  /// The probabilities hold for frames sent before this time.
  TimePoint until = kNever;
  /// Timeout after which two partitioned members count each other as lost, until one of them is
  /// restarted; also for a one-way partition, since nothing is acknowledged then.
  Duration dead_after = Duration::max();

  /// Frames between `a` and `b` sent within [begin, end) do not arrive: in both directions, or with
  /// `one_way` only from `a` to `b`.
  struct Partition {
    WorkerId a, b;
    TimePoint begin, end;
    bool one_way = false;
  };
  std::vector<Partition> partitions;

  /// The rank stops at `time`: its queued frames are not sent, its tasks end, the others are told
  /// after the link's delay.
  struct Crash {
    WorkerId rank;
    TimePoint time;
  };
  std::vector<Crash> crashes;

  /// The rank's compute regions last `factor` times as long.
  struct Slowdown {
    WorkerId rank;
    double factor = 1;
  };
  std::vector<Slowdown> slowdowns;
};

/// THROWS: ConfigError naming the field, its value and the rule.
void check_faults(const FaultPlan& plan, int members);

/// The exception that unwinds a crashed rank's tasks. Not a std::exception: error handlers must not
/// catch it.
struct RankCrashed {
  WorkerId rank;
};

/// The decision about one frame.
struct FrameFate {
  bool drop = false;
  bool corrupt = false;
  Duration hold_up{0};           // delay of this frame and all behind it
  Duration fall_behind{0};       // delay of this frame alone
  Duration repeat_after{0};      // > 0: arrives a second time, that much later
  std::uint64_t chosen_bit = 0;  // random word that picks the bit to flip
};

/// The fate of frame number `frame` of link `link`, sent at `now` from `from` to `to`.
[[nodiscard]] FrameFate decide_fate(const FaultPlan& plan, const Rng& rng, std::uint32_t link,
                                    std::uint64_t frame, WorkerId from, WorkerId to, TimePoint now);

/// Number of affected frames by fault.
struct FaultCounts {
  std::uint64_t dropped = 0;  // partitions included
  std::uint64_t delayed = 0;
  std::uint64_t duplicated = 0;
  std::uint64_t reordered = 0;
  std::uint64_t corrupted = 0;
};

}  // namespace isthmus
