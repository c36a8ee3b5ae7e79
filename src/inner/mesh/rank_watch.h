// SPDX-License-Identifier: Apache-2.0
// Which ranks of a mesh are slow, from the regularity of their steps (C4, arXiv:2403.04706 §3):
// ranks that do the same work take as long, so one that takes longer for several steps is ill.
// Pure.
//
// A rank is compared with the median of those that do the same work; one that nobody shares its
// work with, with its own median, relative to what the others of that kind are to theirs. It is
// slow when the median of its last kWindow ratios is above the threshold, or above what the ratios'
// jitter explains, where that is more; it is well again below the square root of that. DEVIATION:
// C4 times messages by pairs of ranks, here it is the way to and from the first rank.
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
    double factor = 1;       // median of the window
    std::int64_t since = 0;  // step of the first reading that was so
  };
  /// groups: for each rank which others do the same work, by a number. threshold: of a ratio.
  /// floor_s: added to every reading, so that jitter of very short ones does not count.
  OutlierWatch(std::vector<int> groups, double threshold, double floor_s);

  /// seconds: of each rank, one reading. RETURNS: who has become slow, or is no longer.
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
  /// Readings, or what they are to the rank's usual ones where nobody does the same.
  [[nodiscard]] std::vector<std::optional<double>> comparable(std::span<const double> seconds);
  [[nodiscard]] bool compares(std::size_t a, std::size_t b) const;
  [[nodiscard]] double limit() const;
  std::optional<Change> judge(std::size_t rank, double limit);

  const std::vector<int> groups_;
  std::vector<bool> alone_;  // nobody does the same
  const double threshold_, floor_s_;
  std::vector<Rank> ranks_;
  std::deque<double> jitter_;  // of a ratio from one reading to the next, of all ranks
};

struct RankReading {
  double computed_s = 0;  // of a step, outside of calls that wait for others
  double answered_s = 0;  // a message to the rank and back; of the first rank nothing
};

class RankWatch {
 public:
  static constexpr double kSlowComputing = 1.5;
  static constexpr double kSlowMessages = 3;  // C4 looks for as much

  explicit RankWatch(const MeshShape& mesh);
  /// readings: one of each rank.
  [[nodiscard]] std::vector<RankFinding> add(std::int64_t step,
                                             std::span<const RankReading> readings);

 private:
  const MeshShape mesh_;
  OutlierWatch computing_, messages_;
};

}  // namespace isthmus
