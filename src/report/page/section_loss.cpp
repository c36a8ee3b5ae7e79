// SPDX-License-Identifier: Apache-2.0
// Loss against steps, against bytes between sites, and against time: three views of the same
// losses.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/data/text.h"
#include "report/page/line_chart.h"
#include "report/page/page.h"

namespace isthmus::report {
namespace {

struct View {
  Against against;
  const char* id;
  const char* tab;
  std::string x_label;
  AxisUnit unit;
  bool log_x;
};

/// Log when the runs' last positions lie so far apart that the shortest would be squeezed flat.
bool far_apart(const Page& page, Against against) {
  double least = INFINITY;
  double most = 0;
  for (const RunView& run : page.runs) {
    const std::vector<Point> points = train_series(run.data, against);
    if (!points.empty()) {
      least = std::min(least, points.back().x);
      most = std::max(most, points.back().x);
    }
  }
  constexpr double kSqueezed = 6;
  return most > kSqueezed * least && least > 0;
}

std::string time_label(const Page& page) {
  if (!all_simulated(page.runs)) {
    return "time since the first step, on the machine that ran it";
  }
  return clock_caption(page.runs.front());
}

LineChart make_chart(Page& page, const View& view) {
  LineChart chart{.id = view.id,
                  .x_label = view.x_label + (view.log_x ? " (log scale)" : ""),
                  .y_label = "loss, nats per token",
                  .log_x = view.log_x,
                  .x_unit = view.unit};
  chart.description = fmt::format("Loss against {}.", view.x_label);
  for (std::size_t i = 0; i < page.runs.size(); ++i) {
    const RunView& run = page.runs[i];
    const int colour = static_cast<int>(i);
    std::vector<Point> train = train_series(run.data, view.against);
    std::vector<Point> evals = eval_series(run.data, view.against);
    if (view.log_x) {  // the first step's time since the first step is zero
      std::erase_if(train, [](const Point& point) { return point.x <= 0; });
      std::erase_if(evals, [](const Point& point) { return point.x <= 0; });
    }
    page.decimated = page.decimated || train.size() > page.limits.points_per_series ||
                     evals.size() > page.limits.points_per_series;
    if (!train.empty()) {
      chart.description += fmt::format(" {}: training loss from {} to {}.", run.data.label,
                                       format_loss(train.front().y), format_loss(train.back().y));
    }
    chart.series.push_back({.label = run.data.label + " train",
                            .colour = colour,
                            .faint = evals.size() > 1,
                            .points = decimate(train, page.limits.points_per_series)});
    if (!evals.empty()) {
      chart.series.push_back({.label = run.data.label + " validation",
                              .colour = colour,
                              .marks = evals.size() <= 60,
                              .points = decimate(evals, page.limits.points_per_series)});
    }
  }
  std::erase_if(chart.series, [](const ChartSeries& series) { return series.points.empty(); });
  return chart;
}

std::string legend(const Page& page) {
  std::string html = "<p class=\"legend\">";
  for (std::size_t i = 0; i < page.runs.size(); ++i) {
    html += concat("<span>", run_tag(page, i), "</span>");
  }
  const bool curves = std::any_of(page.runs.begin(), page.runs.end(),
                                  [](const RunView& run) { return run.data.evals.size() > 1; });
  return concat(html, "<span class=\"hint\">",
                curves ? "bold: validation, of the parameters that all workers share · pale: "
                         "training, every step"
                       : "line: training, every step · dot: validation, of the parameters that all "
                         "workers share",
                "</span></p>\n");
}

/// The last evaluation of each source, of runs whose data are a mix.
std::string losses_by_source(const Page& page) {
  std::string rows;
  for (std::size_t i = 0; i < page.runs.size(); ++i) {
    const std::vector<EvalPoint>& evals = page.runs[i].data.evals;
    if (evals.empty()) continue;
    for (const auto& [name, loss] : evals.back().sources) {
      rows += concat("<tr><td>", run_tag(page, i), "</td><td>", escape_html(name), "</td><td>",
                     format_loss(loss), "</td></tr>\n");
    }
  }
  if (rows.empty()) return {};
  return concat(
      "<h3>Validation loss by source</h3>\n<table><thead><tr><th scope=\"col\">Run</th>",
      "<th scope=\"col\">Source</th><th scope=\"col\">Val. loss<small>final, nats</small>",
      "</th></tr></thead><tbody>\n", rows, "</tbody></table>\n");
}

}  // namespace

void section_loss(Page& page) {
  const bool simulated = all_simulated(page.runs);
  const Against clock = simulated ? Against::kSimulated : Against::kWall;
  const std::vector<View> views = {
      {Against::kSteps, "loss-steps", "Steps", "inner steps", AxisUnit::kPlain, false},
      {Against::kBytes, "loss-bytes", "Inter-site bytes",
       "bytes sent between sites by one worker, headers included", AxisUnit::kBytes, true},
      {clock, "loss-time", simulated ? "Simulated time" : "Time", time_label(page),
       AxisUnit::kSeconds, far_apart(page, clock)},
  };
  page.html += section_open("loss", "Loss") + legend(page) + "<div class=\"tabs\">\n";
  std::string panels;
  for (std::size_t i = 0; i < views.size(); ++i) {
    const View& view = views[i];
    const LineChart chart = make_chart(page, view);
    page.html += fmt::format(
        R"(<input type="radio" name="loss-view" id="tab-{0}"{1}><label for="tab-{0}">{2}</label>)",
        view.id, i == 0 ? " checked" : "", view.tab);
    const std::string badge =
        view.against == Against::kSimulated ? clock_badge(page.runs.front()) : "";
    panels += fmt::format("<div class=\"panel\"><h3>Loss against {} {}</h3>\n",
                          escape_html(view.x_label), badge);
    if (chart.series.empty()) {
      panels +=
          fmt::format("<p class=\"empty\">{}</p>",
                      view.against == Against::kBytes ? "No bytes went between sites in these runs."
                                                      : "No losses to draw yet.");
    } else {
      panels += chart_html(chart);
      page.charts.push_back(chart_json(chart));
    }
    panels += "</div>\n";
  }
  page.html += panels + "</div>" + losses_by_source(page) + "</section>\n";
}

}  // namespace isthmus::report
