// SPDX-License-Identifier: Apache-2.0
// A variant's tuning: its grid, then a fixed number of follow-up trials. All variants have equal
// numbers of both, so none is tuned harder than another. A follow-up goes beyond the edge of the
// grid while the best value is the smallest or largest tried, else next to the best one. Pure: the
// next trial is a function of the earlier ones.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/schema/experiment.h"

namespace isthmus::app {

/// One value for each axis of a space.
using Point = std::vector<Setting>;

struct Trial {
  Point point;
  double loss = 0;  // infinite: it failed
};

/// The grid, the last key's values changing fastest; one empty point without a space.
[[nodiscard]] std::vector<Point> grid_of(const std::vector<TuneAxis>& space);

/// The best of trials that did not all fail, the first of equals.
[[nodiscard]] const Trial* best_of(const std::vector<Trial>& trials);

/// The next follow-up: along the first axis on whose edge the best trial lies, else into the widest
/// gap next to it. `allowed`: whether a point makes a valid run. RETURNS: nothing when every trial
/// failed, no axis is numeric, or no gap is left.
[[nodiscard]] std::optional<Point> follow_up(const std::vector<Trial>& trials,
                                             const std::function<bool(const Point&)>& allowed);

/// An axis on which no value beyond the best trial's was tried, although one is allowed.
struct GridEdge {
  std::string key;
  std::string value;  // as TOML
  bool largest = false;
};
[[nodiscard]] std::vector<GridEdge> edges_of(const std::vector<Trial>& trials,
                                             const std::function<bool(const Point&)>& allowed);

}  // namespace isthmus::app
