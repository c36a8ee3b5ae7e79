// SPDX-License-Identifier: Apache-2.0
// One axis of a chart: range, linear or logarithmic, and ticks at readable values. Pure values.
#pragma once

#include <string>
#include <vector>

namespace isthmus::report {

enum class AxisUnit { kPlain, kBytes, kSeconds, kRate };
[[nodiscard]] const char* axis_unit_name(AxisUnit unit);  // for the page's script

struct Tick {
  double position = 0;  // 0 at the low end, 1 at the high end
  std::string label;
};

struct Axis {
  double low = 0;
  double high = 1;
  bool log = false;
  AxisUnit unit = AxisUnit::kPlain;

  /// Share of the axis at which `value` lies; outside [0, 1] if it is out of range.
  [[nodiscard]] double position(double value) const;
  /// About `wanted` ticks inside the range, ascending.
  [[nodiscard]] std::vector<Tick> ticks(int wanted) const;
};

/// An axis over all finite `values` (for `log`, the positive ones), with padding at both ends if
/// `air`.
[[nodiscard]] Axis make_axis(const std::vector<double>& values, bool log, AxisUnit unit, bool air);

}  // namespace isthmus::report
