// SPDX-License-Identifier: Apache-2.0
// Reference curves: losses of a known-good program's runs on many seeds, and the band in which the
// mean of a few more runs lies at each evaluation. Answers "does my build train normally?". Pure
// functions of cells.
//
// The band is the prediction interval of a mean of k new draws from n old ones of one normal
// distribution, mean +- t s sqrt(1/n + 1/k), at the level false_alarm / (all points of all curves):
// a build that trains like the reference is reported as abnormal with at most that probability.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "report/data/cells.h"
#include "report/data/statistics.h"

namespace isthmus::report {

inline constexpr double kFalseAlarm = 0.01;  // of a whole check

/// One evaluation of one variant: the reference's losses, the band, and the new result.
struct CurvePoint {
  std::int64_t step = 0;
  Spread reference;
  Interval band;
  double loss = 0;  // mean over the new seeds; infinite if one failed
  [[nodiscard]] bool normal() const { return band.holds(loss); }
};

struct CurveCheck {
  std::string variant;
  std::string method;
  int seeds = 0;                   // new ones
  std::string cause;               // of the first new run that failed
  std::vector<CurvePoint> points;  // by step
  [[nodiscard]] bool normal() const;
  /// The point furthest from the reference's mean, as a share of the band's half width.
  [[nodiscard]] const CurvePoint& furthest() const;
};
/// Distance from the reference's mean in half widths of the band: above 1 is abnormal.
[[nodiscard]] double distance(const CurvePoint& point);

/// Each variant of `fresh`, in its order, against the runs of the same name in `reference`.
/// REQUIRES: seed cells only; two or more reference runs of each variant, evaluated at the steps of
/// the fresh ones (a failed one has fewer).
[[nodiscard]] std::vector<CurveCheck> check_curves(const std::vector<CellResult>& reference,
                                                   const std::vector<CellResult>& fresh,
                                                   double false_alarm = kFalseAlarm);

}  // namespace isthmus::report
