// SPDX-License-Identifier: Apache-2.0
// Rounds as they were predicted, laid over the same rounds as they were measured.
#include "report/page/section_round_errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "report/data/json_fields.h"
#include "report/data/text.h"
#include "report/page/line_chart.h"

namespace isthmus::report {
namespace {

constexpr std::size_t kMostCharts = 8;   // of a page
constexpr std::size_t kMostDrawn = 3;    // fragments of a chart: two lines each
constexpr std::size_t kMostMarked = 60;  // points of a line that are told apart

/// Rounds of a fragment, or of all (fragment = -1), predicted and measured.
struct RoundErrorRow {
  std::int64_t fragment = -1;
  double rounds = kNothing;
  double predicted_median_s = kNothing, predicted_p95_s = kNothing;
  double measured_median_s = kNothing, measured_p95_s = kNothing;
  double error = kNothing;  // of the medians: predicted / measured - 1
};

/// One round, from its begin until its result was final at one worker.
struct RoundErrorPoint {
  std::int64_t fragment = 0;
  double sent = 0;  // after this step
  double predicted_s = kNothing;
  double measured_s = kNothing;
};

struct RoundErrors {
  std::string at;                   // the worker
  std::vector<RoundErrorRow> rows;  // by fragment, then of all; empty: nothing says
  std::vector<RoundErrorPoint> points;
};

RoundErrorRow read_row(const Json& value) {
  return {.fragment = integer_at(value, "frag", -1),
          .rounds = number_at(value, "rounds"),
          .predicted_median_s = number_at(value, "predicted_median_s"),
          .predicted_p95_s = number_at(value, "predicted_p95_s"),
          .measured_median_s = number_at(value, "measured_median_s"),
          .measured_p95_s = number_at(value, "measured_p95_s"),
          .error = number_at(value, "error")};
}

/// prediction.rounds of summary.json; entries of another form are left out. A file that cannot be
/// read has its warning already.
RoundErrors read_errors(const std::filesystem::path& directory) {
  RunData unused;
  const Json summary = parse_file(directory / "summary.json", unused);
  RoundErrors errors;
  if (!summary.is_object()) return errors;
  const Json& rounds = object_at(object_at(summary, "prediction"), "rounds");
  errors.at = text_at(rounds, "at");
  for (const Json& row : list_at(rounds, "fragments")) {
    if (row.is_object()) errors.rows.push_back(read_row(row));
  }
  if (const Json& all = object_at(rounds, "all"); !all.empty()) {
    errors.rows.push_back(read_row(all));
  }
  for (const Json& pair : list_at(rounds, "pairs")) {
    const bool whole = pair.is_array() && pair.size() == 4 && pair[0].is_number_integer();
    if (!whole || !std::isfinite(number_of(pair[1]))) continue;
    errors.points.push_back({.fragment = pair[0].get<std::int64_t>(),
                             .sent = number_of(pair[1]),
                             .predicted_s = number_of(pair[2]),
                             .measured_s = number_of(pair[3])});
  }
  return errors;
}

std::string row_of(const RoundErrorRow& row) {
  const std::string name =
      row.fragment < 0 ? "all fragments" : format_count(static_cast<double>(row.fragment));
  return fmt::format(
      "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}"
      "</td></tr>",
      name, format_count(row.rounds), format_seconds(row.predicted_median_s),
      format_seconds(row.predicted_p95_s), format_seconds(row.measured_median_s),
      format_seconds(row.measured_p95_s), escape_html(format_signed_percent(row.error)));
}

/// What stands beside a prediction: "simulated", or "measured" where real clocks told it.
const char* found_word(const RunView& run) {
  return run.clock.simulated ? "simulated" : "measured";
}

/// Those that take longest first; of equal ones the first.
std::vector<std::int64_t> longest_fragments(const RoundErrors& record) {
  std::vector<RoundErrorRow> rows = record.rows;
  std::erase_if(rows, [](const RoundErrorRow& row) { return row.fragment < 0; });
  std::ranges::stable_sort(rows, std::ranges::greater(), [](const RoundErrorRow& row) {
    return std::isfinite(row.measured_median_s) ? row.measured_median_s : 0;
  });
  rows.resize(std::min(rows.size(), kMostDrawn));
  std::vector<std::int64_t> fragments;
  for (const RoundErrorRow& row : rows) fragments.push_back(row.fragment);
  std::ranges::sort(fragments);
  return fragments;
}

LineChart chart_of(Page& page, std::size_t index, const RoundErrors& record) {
  LineChart chart{.id = fmt::format("round-times-{}", index),
                  .x_label = "inner step after which the round was sent",
                  .y_label = "time from begin to final result",
                  .description = fmt::format("How long each round took, predicted and {}.",
                                             found_word(page.runs[index])),
                  .y_unit = AxisUnit::kSeconds};
  const std::vector<std::int64_t> fragments = longest_fragments(record);
  const std::size_t share =
      page.limits.points_per_series / std::max<std::size_t>(2 * fragments.size(), 1);
  int colour = 0;
  for (const std::int64_t fragment : fragments) {
    std::vector<Point> predicted;
    std::vector<Point> measured;
    for (const RoundErrorPoint& point : record.points) {
      if (point.fragment != fragment) continue;
      predicted.push_back({point.sent, point.predicted_s});
      measured.push_back({point.sent, point.measured_s});
    }
    if (predicted.empty()) continue;
    page.decimated = page.decimated || predicted.size() > share;
    const std::string name =
        fragments.size() > 1 ? fmt::format("fragment {}, ", fragment) : std::string();
    chart.series.push_back({.label = name + found_word(page.runs[index]),
                            .colour = colour % kPaletteSize,
                            .marks = measured.size() <= kMostMarked,
                            .points = decimate(measured, share)});
    chart.series.push_back({.label = name + "predicted",
                            .colour = (colour + 1) % kPaletteSize,
                            .points = decimate(predicted, share)});
    colour += 2;
  }
  return chart;
}

std::string legend_of(const LineChart& chart) {
  std::string html = "<p class=\"legend\">";
  for (const ChartSeries& series : chart.series) {
    html += fmt::format("<span>{}{}</span>", line_key(series.colour), escape_html(series.label));
  }
  return html + "</p>\n";
}

}  // namespace

std::string round_errors_of(Page& page, std::size_t index) {
  const RoundErrors record = read_errors(page.runs[index].data.directory);
  if (record.rows.empty()) return {};
  std::vector<RoundErrorRow> rows = record.rows;
  const bool one =
      rows.size() == 2 && rows.back().fragment < 0;  // the row of all fragments says the same
  if (one) rows.pop_back();
  const std::size_t shown = std::min(rows.size(), page.limits.rows_per_table);
  std::string cells;
  for (std::size_t i = 0; i < shown; ++i) cells += row_of(rows[i]);
  std::string html = fmt::format(
      "<p class=\"lead\">Single rounds at {0}, from begin to final result; error: predicted / "
      "{3} − 1, of the medians.</p><div class=\"scroll\"><table class=\"round-errors\"><thead>"
      "<tr><th scope=\"col\">Fragment</th><th scope=\"col\">Rounds</th>"
      "<th scope=\"col\">Predicted<small>median</small></th><th "
      "scope=\"col\">Predicted<small>95 % take less</small></th>"
      "<th scope=\"col\">{4}<small>median</small></th><th scope=\"col\">{4}<small>95 % take "
      "less</small></th>"
      "<th scope=\"col\">Error<small>of the median</small></th></tr></thead><tbody>{1}</tbody>"
      "</table></div>{2}\n",
      escape_html(record.at), cells, first_of_hint(shown, rows.size(), "rows"),
      found_word(page.runs[index]), page.runs[index].clock.simulated ? "Simulated" : "Measured");
  if (index >= kMostCharts) return html;
  const LineChart chart = chart_of(page, index, record);
  if (chart.series.empty()) return html;
  page.charts.push_back(chart_json(chart));
  html += legend_of(chart) + chart_html(chart);
  const auto fragments = static_cast<std::size_t>(std::ranges::count_if(
      record.rows, [](const RoundErrorRow& row) { return row.fragment >= 0; }));
  if (chart.series.size() < 2 * fragments) {
    html += "<p class=\"hint\">The chart draws the fragments with the longest rounds only.</p>\n";
  }
  return html;
}

}  // namespace isthmus::report
