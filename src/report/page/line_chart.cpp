// SPDX-License-Identifier: Apache-2.0
#include "report/page/line_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "report/data/text.h"

namespace isthmus::report {
namespace {

// The drawing area in user units; the browser stretches it, strokes keep their width.
constexpr double kWidth = 1000;
constexpr double kHeight = 400;

Axis axis_over(const LineChart& chart, double Point::*coordinate, bool log, AxisUnit unit,
               bool air) {
  std::vector<double> values;
  for (const ChartSeries& series : chart.series) {
    for (const Point& point : series.points) {
      if (std::isfinite(point.y)) {
        values.push_back(point.*coordinate);
      }
    }
    if (coordinate == &Point::y) {
      values.insert(values.end(), series.low.begin(), series.low.end());
      values.insert(values.end(), series.high.begin(), series.high.end());
    }
  }
  if (coordinate == &Point::x && chart.mark) {
    values.push_back(chart.mark->x);
  }
  return make_axis(values, log, unit, air);
}

/// Path through the points, broken where one cannot be drawn.
std::string line_path(const std::vector<Point>& points, const Axis& x, const Axis& y) {
  std::string path;
  bool pen_down = false;
  for (const Point& point : points) {
    const bool drawable = std::isfinite(point.y) && std::isfinite(point.x) &&
                          (!x.log || point.x > 0) && (!y.log || point.y > 0);
    if (!drawable) {
      pen_down = false;
      continue;
    }
    const double px = std::clamp(x.position(point.x), -0.1, 1.1) * kWidth;
    const double py = (1 - std::clamp(y.position(point.y), -0.1, 1.1)) * kHeight;
    fmt::format_to(std::back_inserter(path), "{}{:.1f} {:.1f}", pen_down ? "L" : "M", px, py);
    pen_down = true;
  }
  return path;
}

/// A dot at each point: zero-length strokes with round caps stay round when the picture stretches.
std::string dots_path(const std::vector<Point>& points, const Axis& x, const Axis& y) {
  std::string path;
  for (const Point& point : points) {
    if (std::isfinite(point.y) && (!x.log || point.x > 0) && (!y.log || point.y > 0)) {
      fmt::format_to(std::back_inserter(path), "M{:.1f} {:.1f}h0",
                     std::clamp(x.position(point.x), -0.1, 1.1) * kWidth,
                     (1 - std::clamp(y.position(point.y), -0.1, 1.1)) * kHeight);
    }
  }
  return path;
}

/// The area between a series' low and high values.
std::string band_path(const ChartSeries& series, const Axis& x, const Axis& y) {
  std::vector<Point> outline;
  for (std::size_t i = 0; i < series.low.size(); ++i) {
    if (std::isfinite(series.low[i]) && std::isfinite(series.high[i])) {
      outline.push_back({series.points[i].x, series.high[i]});
    }
  }
  for (std::size_t i = series.low.size(); i-- > 0;) {
    if (std::isfinite(series.low[i]) && std::isfinite(series.high[i])) {
      outline.push_back({series.points[i].x, series.low[i]});
    }
  }
  return outline.empty() ? std::string{} : line_path(outline, x, y) + "Z";
}

std::string mark_html(const LineChart& chart, const Axis& x) {
  if (!chart.mark) {
    return {};
  }
  return fmt::format(R"(<path class="mark" d="M{:.1f} 0V{}"/>)",
                     std::clamp(x.position(chart.mark->x), 0.0, 1.0) * kWidth, kHeight);
}

std::string mark_label(const LineChart& chart, const Axis& x) {
  if (!chart.mark) {
    return {};
  }
  const double place = std::clamp(x.position(chart.mark->x), 0.0, 1.0);
  return fmt::format(R"(<span class="mark-label{}" style="left:{:.2f}%">{}</span>)",
                     place > 0.6 ? " before" : "", place * 100, escape_html(chart.mark->label));
}

std::string values_json(const std::vector<double>& values) {
  std::string json = "[";
  for (const double value : values) {
    fmt::format_to(std::back_inserter(json), "{}{}", json.size() > 1 ? "," : "",
                   std::isfinite(value) ? fmt::format("{:.6g}", value) : "null");
  }
  return json + "]";
}

std::string grid_html(const std::vector<Tick>& x, const std::vector<Tick>& y) {
  std::string path;
  for (const Tick& tick : y) {
    fmt::format_to(std::back_inserter(path), "M0 {:.1f}H{}", (1 - tick.position) * kHeight, kWidth);
  }
  for (const Tick& tick : x) {
    fmt::format_to(std::back_inserter(path), "M{:.1f} 0V{}", tick.position * kWidth, kHeight);
  }
  return fmt::format(R"(<path class="grid" d="{}"/>)", path);
}

std::string axis_labels(const std::vector<Tick>& ticks, bool horizontal) {
  std::string html;
  for (const Tick& tick : ticks) {
    // A label whose middle is at the very end would hang out of the figure.
    if (horizontal && tick.position > 0.985) {
      continue;
    }
    fmt::format_to(std::back_inserter(html), R"(<span style="{}:{:.2f}%">{}</span>)",
                   horizontal ? "left" : "bottom", tick.position * 100, escape_html(tick.label));
  }
  return html;
}

std::string numbers_json(const std::vector<Point>& points, double Point::*coordinate) {
  std::string json = "[";
  for (const Point& point : points) {
    const double value = point.*coordinate;
    fmt::format_to(std::back_inserter(json), "{}{}", json.size() > 1 ? "," : "",
                   std::isfinite(value) ? fmt::format("{:.6g}", value) : "null");
  }
  return json + "]";
}

}  // namespace

std::string line_key(int colour) {
  return fmt::format(
      R"(<svg class="key c{}" viewBox="0 0 28 8" aria-hidden="true"><path d="M1 4h26"/></svg>)",
      colour % kPaletteSize);
}

std::string chart_html(const LineChart& chart) {
  const Axis x = axis_over(chart, &Point::x, chart.log_x, chart.x_unit, false);
  const Axis y = axis_over(chart, &Point::y, chart.log_y, chart.y_unit, true);
  const std::vector<Tick> x_ticks = x.ticks(6);
  const std::vector<Tick> y_ticks = y.ticks(5);
  std::string lines;
  for (const ChartSeries& series : chart.series) {
    if (!series.low.empty()) {
      fmt::format_to(std::back_inserter(lines), R"(<path class="band c{}" d="{}"/>)",
                     series.colour % kPaletteSize, band_path(series, x, y));
    }
  }
  for (const bool faint : {true, false}) {  // pale lines below the bold ones
    for (const ChartSeries& series : chart.series) {
      if (series.faint != faint) {
        continue;
      }
      const int colour = series.colour % kPaletteSize;
      fmt::format_to(std::back_inserter(lines), R"(<path class="line c{}{}" d="{}"/>)", colour,
                     faint ? " faint" : "", line_path(series.points, x, y));
      if (series.marks) {
        fmt::format_to(std::back_inserter(lines), R"(<path class="dots c{}" d="{}"/>)", colour,
                       dots_path(series.points, x, y));
      }
    }
  }
  return fmt::format(
      R"(<figure class="chart" id="{id}"><div class="y-name">{y_name}</div>
<div class="plot" role="img" aria-label="{description}"><div class="y-labels">{y_labels}</div>
<svg viewBox="0 0 {width} {height}" preserveAspectRatio="none" aria-hidden="true">{grid}{lines}{mark}</svg>
<div class="x-labels">{x_labels}</div>{mark_label}</div>
<figcaption class="x-name">{x_name}</figcaption></figure>
)",
      fmt::arg("id", chart.id), fmt::arg("y_name", escape_html(chart.y_label)),
      fmt::arg("description", escape_html(chart.description)),
      fmt::arg("y_labels", axis_labels(y_ticks, false)), fmt::arg("width", kWidth),
      fmt::arg("height", kHeight), fmt::arg("grid", grid_html(x_ticks, y_ticks)),
      fmt::arg("lines", lines), fmt::arg("mark", mark_html(chart, x)),
      fmt::arg("mark_label", mark_label(chart, x)),
      fmt::arg("x_labels", axis_labels(x_ticks, true)),
      fmt::arg("x_name", escape_html(chart.x_label)));
}

std::string chart_json(const LineChart& chart) {
  std::string series_json;
  for (const ChartSeries& series : chart.series) {
    fmt::format_to(std::back_inserter(series_json),
                   R"({}{{"label":{},"colour":{},"faint":{},"marks":{},"x":{},"y":{}{}}})",
                   series_json.empty() ? "" : ",", json_string(series.label),
                   series.colour % kPaletteSize, series.faint, series.marks,
                   numbers_json(series.points, &Point::x), numbers_json(series.points, &Point::y),
                   series.low.empty() ? std::string{}
                                      : concat(",\"low\":", values_json(series.low),
                                               ",\"high\":", values_json(series.high)));
  }
  const std::string mark = chart.mark ? fmt::format(R"({{"x":{:.6g},"label":{}}})", chart.mark->x,
                                                    json_string(chart.mark->label))
                                      : std::string{"null"};
  return fmt::format(
      R"({{"id":{},"x_label":{},"y_label":{},"log_x":{},"log_y":{},"x_unit":"{}","y_unit":"{}","faint_name":{},"mark":{},"series":[{}]}})",
      json_string(chart.id), json_string(chart.x_label), json_string(chart.y_label), chart.log_x,
      chart.log_y, axis_unit_name(chart.x_unit), axis_unit_name(chart.y_unit),
      json_string(chart.faint_name), mark, series_json);
}

}  // namespace isthmus::report
