// SPDX-License-Identifier: Apache-2.0
// Detects slow ranks of a mesh by the regularity of their steps (C4, arXiv:2403.04706 §3): ranks
// with equal work take equally long, so a rank that takes longer for several steps has a fault.
// Pure.
//
// A rank is compared with the median of the ranks with equal work. A rank without such peers is
// compared with its own median, relative to the same ratio of the other ranks without peers. It is
// slow when the median of its last kWindow ratios is above a limit: the threshold, or the bound of
// the ratios' jitter if that is larger. It is normal again below the square root of the limit.
// DEVIATION: C4 times messages by pairs of ranks; here it is the way to and from the first rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "core/base/rank_finding.h"
#include "inner/mesh/mesh.h"

namespace isthmus {

/// One quantity of all ranks, in seconds.
class OutlierWatch {
 public:
  static constexpr std::size_t kWindow = 7;
  struct Change {
    int rank = 0;
    bool over = false;
    double factor = 1;       // median ratio of the window
    std::int64_t since = 0;  // step of the first reading beyond the limit
  };
  /// groups: a number for each rank; ranks with equal work have equal numbers. threshold: bound of
  /// the ratio. floor_s: added to every reading, so that jitter of very short readings does not
  /// count.
  OutlierWatch(std::vector<int> groups, double threshold, double floor_s);

  /// seconds: one reading per rank. RETURNS: ranks that have become slow, or are no longer slow.
  std::vector<Change> add(std::int64_t step, std::span<const double> seconds);

 private:
  struct Ratio {
    std::int64_t step;
    double log;
  };
  struct Rank {
    std::deque<Ratio> window;  // the last kWindow
    std::deque<double> usual;  // readings while it was not slow
    std::int64_t since = 0;
    bool slow = false;
  };
  /// The readings; for a rank without peers, the reading relative to its usual ones.
  [[nodiscard]] std::vector<std::optional<double>> comparable(std::span<const double> seconds);
  [[nodiscard]] bool compares(std::size_t a, std::size_t b) const;
  [[nodiscard]] double limit() const;
  std::optional<Change> judge(std::size_t rank, double limit);

  const std::vector<int> groups_;
  std::vector<bool> alone_;  // no other rank has equal work
  const double threshold_, floor_s_;
  std::vector<Rank> ranks_;
  std::deque<double> jitter_;  // changes of a ratio between successive readings, of all ranks
};

struct RankReading {
  double computed_s = 0;  // time of a step outside calls that wait for other ranks
  double answered_s = 0;  // round trip of a message to the rank; 0 for the first rank
};

class RankWatch {
 public:
  static constexpr double kSlowComputing = 1.5;
  static constexpr double kSlowMessages = 3;  // C4 uses the same factor

  explicit RankWatch(const MeshShape& mesh);
  /// readings: one per rank.
  [[nodiscard]] std::vector<RankFinding> add(std::int64_t step,
                                             std::span<const RankReading> readings);

 private:
  const MeshShape mesh_;
  OutlierWatch computing_, messages_;
};

}  // namespace isthmus
