// SPDX-License-Identifier: Apache-2.0
// A line chart, written twice from the same points: as SVG with HTML labels, which needs no
// JavaScript, fits any width and is used for printing; and as data for the page's script, which
// draws an interactive Chart.js canvas over it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/page/axis.h"
#include "report/page/figures.h"

namespace isthmus::report {

struct ChartSeries {
  std::string label;
  int colour = 0;      // index in the palette, with its dash pattern
  bool faint = false;  // thin and pale: the noisy raw values
  bool marks = false;  // a dot at each point
  std::vector<Point> points;
  std::vector<double> low, high;  // a band around the line, one pair a point; empty: none
};

/// A vertical line across the chart.
struct ChartMark {
  double x = 0;
  std::string label;
};

struct LineChart {
  std::string id;  // of the figure; unique in the page; no escaping needed
  std::string x_label;
  std::string y_label;
  std::string description;  // alternative text of the picture
  bool log_x = false;
  bool log_y = false;
  AxisUnit x_unit = AxisUnit::kPlain;
  AxisUnit y_unit = AxisUnit::kPlain;
  std::string faint_name = "training loss";  // label of the faint lines
  std::optional<ChartMark> mark;
  std::vector<ChartSeries> series;
};

inline constexpr int kPaletteSize = 14;  // seven colours, each with two dashes (assets/page.css)

/// The <figure>. `label`s and texts are escaped here.
[[nodiscard]] std::string chart_html(const LineChart& chart);
/// One JSON object for the script.
[[nodiscard]] std::string chart_json(const LineChart& chart);
/// A short piece of a run's line, for legends and tables.
[[nodiscard]] std::string line_key(int colour);

}  // namespace isthmus::report
