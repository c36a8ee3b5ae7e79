// SPDX-License-Identifier: Apache-2.0
#include "record/run_status.h"

#include <algorithm>
#include <limits>

namespace isthmus::app {

void ThinCurve::add(std::int64_t step, double value) {
  sum_ += value;
  last_step_ = step;
  if (++unfinished_ < per_point_) {
    return;
  }
  points_.emplace_back(step, sum_ / static_cast<double>(unfinished_));
  sum_ = 0;
  unfinished_ = 0;
  if (points_.size() < kMostPoints) {
    return;
  }
  for (std::size_t i = 0; i < kMostPoints / 2; ++i) {
    points_[i] = {points_[2 * i + 1].first,
                  (points_[2 * i].second + points_[2 * i + 1].second) / 2};
  }
  points_.resize(kMostPoints / 2);
  per_point_ *= 2;
}

std::vector<ThinCurve::Point> ThinCurve::points() const {
  std::vector<Point> all = points_;
  if (unfinished_ > 0) {
    all.emplace_back(last_step_, sum_ / static_cast<double>(unfinished_));
  }
  return all;
}

std::string_view trouble_name(LinkTrouble trouble) {
  switch (trouble) {
    case LinkTrouble::kDisconnected:
      return "disconnected";
    case LinkTrouble::kLost:
      return "lost";
    case LinkTrouble::kLeft:
      return "left";
    case LinkTrouble::kHandshakeFailed:
      return "handshake_failed";
    case LinkTrouble::kRefused:
      return "refused";
    case LinkTrouble::kStranger:
      return "stranger";
  }
  return "unknown";
}

std::int64_t RunStatus::rounds() const {
  std::int64_t sum = 0;
  for (const auto& [fragment, each] : fragments) {  // as another process may tell of them
    sum += std::clamp<std::int64_t>(each.rounds, 0, std::numeric_limits<std::int64_t>::max() - sum);
  }
  return sum;
}

std::uint64_t RunStatus::sent_bytes() const {
  std::uint64_t sum = 0;
  for (const WorkerStatus& each : sites) sum += each.wire_bytes;
  return sum;
}

double RunStatus::wait_s() const {
  double sum = 0;
  for (const auto& [fragment, each] : fragments) sum += each.wait_s;
  return sum;
}

}  // namespace isthmus::app
