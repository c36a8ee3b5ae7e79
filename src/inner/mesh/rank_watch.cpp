// SPDX-License-Identifier: Apache-2.0
#include "inner/mesh/rank_watch.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/check.h"

namespace isthmus {
namespace {

constexpr std::size_t kUsual = 64;      // a rank's usual reading is the median of this many
constexpr std::size_t kLeastUsual = 8;  // before that nothing is usual
constexpr std::size_t kJitter = 256;    // changes that the jitter is the median of
// Of a median of kWindow normal values: its standard deviation, in theirs.
constexpr double kMedianDeviation = 0.46;
// Overlapping windows of all ranks of a long run are many; measured (docs/internals/mesh.md):
// with 4.5 one finding in 25 was wrong at a jitter of 20 %.
constexpr double kDeviations = 5;
constexpr double kDeviationOfMedian = 1.4826;  // of normal values: standard to median deviation
constexpr double kMessageFloor = 2e-3;         // waits nap for a millisecond, on either end

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

double median(const std::deque<double>& values) {
  return median(std::vector<double>(values.begin(), values.end()));
}

template <typename T>
void keep(std::deque<T>& values, T value, std::size_t most) {
  values.push_back(value);
  if (values.size() > most) values.pop_front();
}

std::vector<int> stages(const MeshShape& mesh) {
  std::vector<int> groups;
  for (int rank = 0; rank < mesh.ranks(); ++rank) groups.push_back(mesh_position(mesh, rank).pp);
  return groups;
}

}  // namespace

OutlierWatch::OutlierWatch(std::vector<int> groups, double threshold, double floor_s)
    : groups_(std::move(groups)), threshold_(threshold), floor_s_(floor_s), ranks_(groups_.size()) {
  for (const int group : groups_) {
    alone_.push_back(std::count(groups_.begin(), groups_.end(), group) == 1);
  }
}

std::vector<std::optional<double>> OutlierWatch::comparable(std::span<const double> seconds) {
  std::vector<std::optional<double>> values;
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    Rank& rank = ranks_[r];
    const double reading = std::max(0.0, seconds[r]) + floor_s_;
    if (!alone_[r]) {
      values.emplace_back(reading);
      continue;
    }
    if (rank.usual.size() < kLeastUsual) {
      values.emplace_back();
    } else {
      values.emplace_back(reading / median(rank.usual));
    }
    if (!rank.slow) keep(rank.usual, reading, kUsual);
  }
  return values;
}

bool OutlierWatch::compares(std::size_t a, std::size_t b) const {
  if (a == b) return false;
  return alone_[a] ? alone_[b] : groups_[a] == groups_[b];
}

std::vector<OutlierWatch::Change> OutlierWatch::add(std::int64_t step,
                                                    std::span<const double> seconds) {
  ISTHMUS_CHECK(seconds.size() == ranks_.size(), seconds.size(), ranks_.size());
  const std::vector<std::optional<double>> values = comparable(seconds);
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    if (!values[r]) continue;
    std::vector<double> others;
    for (std::size_t q = 0; q < ranks_.size(); ++q) {
      if (compares(r, q) && values[q]) others.push_back(*values[q]);
    }
    const double expected = others.empty() ? 1 : median(std::move(others));
    std::deque<Ratio>& window = ranks_[r].window;
    const double log = std::log(*values[r] / expected);
    if (!window.empty()) keep(jitter_, std::abs(log - window.back().log), kJitter);
    keep(window, {step, log}, kWindow);
  }
  const double bound = limit();
  std::vector<Change> changes;
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    if (const std::optional<Change> change = judge(r, bound)) changes.push_back(*change);
  }
  return changes;
}

// Changes from one reading to the next tell the jitter of a rank that is always slower, too.
double OutlierWatch::limit() const {
  if (jitter_.empty()) return std::log(threshold_);
  const double deviation = kDeviationOfMedian * median(jitter_) / std::sqrt(2.0);
  return std::max(std::log(threshold_), kDeviations * kMedianDeviation * deviation);
}

std::optional<OutlierWatch::Change> OutlierWatch::judge(std::size_t r, double bound) {
  Rank& rank = ranks_[r];
  if (rank.window.size() < kWindow) return std::nullopt;
  std::vector<double> logs;
  for (const Ratio& each : rank.window) logs.push_back(each.log);
  const double middle = median(std::move(logs));
  if (rank.slow ? middle >= bound / 2 : middle <= bound) return std::nullopt;
  rank.slow = !rank.slow;
  if (rank.slow) {
    const auto first =
        std::ranges::find_if(rank.window, [bound](const Ratio& each) { return each.log > bound; });
    rank.since = first->step;
  }
  return Change{.rank = static_cast<int>(r),
                .over = !rank.slow,
                .factor = std::exp(middle),
                .since = rank.since};
}

RankWatch::RankWatch(const MeshShape& mesh)
    : mesh_(mesh),
      computing_(stages(mesh), kSlowComputing, 0),
      messages_(std::vector<int>(static_cast<std::size_t>(mesh.ranks() - 1)), kSlowMessages,
                kMessageFloor) {}

std::vector<RankFinding> RankWatch::add(std::int64_t step, std::span<const RankReading> readings) {
  std::vector<double> computed, answered;
  for (const RankReading& each : readings) {
    computed.push_back(each.computed_s);
    answered.push_back(each.answered_s);
  }
  std::vector<RankFinding> findings;
  const auto take = [&](RankTrouble trouble, int first, const auto& changes) {
    for (const OutlierWatch::Change& each : changes) {
      const int rank = first + each.rank;
      findings.push_back({.trouble = trouble,
                          .rank = rank,
                          .at = mesh_position(mesh_, rank),
                          .over = each.over,
                          .factor = each.factor,
                          .since = each.since});
    }
  };
  take(RankTrouble::kSlowComputing, 0, computing_.add(step, computed));
  take(RankTrouble::kSlowMessages, 1, messages_.add(step, std::span(answered).subspan(1)));
  return findings;
}

}  // namespace isthmus
