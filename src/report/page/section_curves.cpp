// SPDX-License-Identifier: Apache-2.0
// Loss of every variant against steps and against bytes between sites: the mean over the seeds with
// its interval, and each seed by itself, pale.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "report/data/text.h"
#include "report/page/comparison_page.h"
#include "report/page/line_chart.h"

namespace isthmus::report {
namespace {

double x_of(const CellEval& eval, bool bytes) {
  return bytes ? eval.wire_bytes : static_cast<double>(eval.step);
}

LineChart chart_of(Page& page, const Comparison& comparison, bool bytes) {
  LineChart chart{.id = bytes ? "loss-bytes" : "loss-steps",
                  .x_label = bytes ? "bytes sent between sites by the site that sent most, headers "
                                     "included (log scale)"
                                   : "inner steps",
                  .y_label = "validation loss, nats per token",
                  .log_x = bytes,
                  .x_unit = bytes ? AxisUnit::kBytes : AxisUnit::kPlain,
                  .faint_name = "single seeds"};
  chart.description =
      fmt::format("Validation loss against {}: mean over the seeds.", chart.x_label);
  for (std::size_t v = 0; v < comparison.variants.size(); ++v) {
    const ComparedVariant& variant = comparison.variants[v];
    const std::vector<Spread> means = loss_by_evaluation(variant);
    const int colour = static_cast<int>(v);
    ChartSeries mean{.label = variant.name, .colour = colour, .marks = means.size() <= 60};
    for (const CellResult& run : variant.runs) {
      ChartSeries single{.label = fmt::format("{} seed {}", variant.name, run.seed),
                         .colour = colour,
                         .faint = true};
      for (const CellEval& eval : run.evals) {
        single.points.push_back({x_of(eval, bytes), eval.loss});
      }
      page.decimated = page.decimated || single.points.size() > page.limits.points_per_series;
      single.points = decimate(single.points, page.limits.points_per_series);
      const bool first = mean.points.empty() && run.status == CellStatus::kOk;
      for (std::size_t i = 0; first && i < std::min(means.size(), run.evals.size()); ++i) {
        const Interval interval = mean_interval(means[i], comparison.rules.confidence);
        mean.points.push_back({x_of(run.evals[i], bytes), means[i].mean});
        const bool band = std::isfinite(interval.low);
        mean.low.push_back(band ? interval.low : means[i].mean);
        mean.high.push_back(band ? interval.high : means[i].mean);
      }
      chart.series.push_back(std::move(single));
    }
    if (mean.points.size() > page.limits.points_per_series) {
      mean.points = decimate(mean.points, page.limits.points_per_series);
      mean.low.clear();
      mean.high.clear();
    }
    if (!mean.points.empty()) {
      chart.description +=
          fmt::format(" {}: {} to {}.", variant.name, format_loss(mean.points.front().y),
                      format_loss(mean.points.back().y));
      chart.series.push_back(std::move(mean));
    }
  }
  std::erase_if(chart.series, [](const ChartSeries& series) { return series.points.empty(); });
  return chart;
}

}  // namespace

std::vector<Spread> loss_by_evaluation(const ComparedVariant& variant) {
  std::vector<std::vector<double>> at;
  for (const CellResult& run : variant.runs) {
    if (run.status != CellStatus::kOk) {
      continue;
    }
    if (at.empty()) {
      at.resize(run.evals.size());
    }
    at.resize(std::min(at.size(), run.evals.size()));
    for (std::size_t i = 0; i < at.size(); ++i) {
      at[i].push_back(run.evals[i].loss);
    }
  }
  std::vector<Spread> spreads;
  for (const std::vector<double>& losses : at) {
    spreads.push_back(spread_of(losses));
  }
  return spreads;
}

void section_curves(Page& page, const ComparisonFolder& folder) {
  const Comparison& comparison = folder.comparison;
  page.html += section_open("loss", "Loss") + "<p class=\"legend\">";
  for (std::size_t v = 0; v < comparison.variants.size(); ++v) {
    page.html += concat("<span>", variant_tag(comparison, v), "</span>");
  }
  page.html += fmt::format(
      "<span class=\"hint\">bold: mean over the seeds · band: its {:g} % interval · pale: each "
      "seed</span></p>\n<div class=\"tabs\">\n",
      100 * comparison.rules.confidence);
  std::string panels;
  for (const bool bytes : {false, true}) {
    const LineChart chart = chart_of(page, comparison, bytes);
    page.html += fmt::format(
        R"(<input type="radio" name="loss-view" id="tab-{0}"{1}><label for="tab-{0}">{2}</label>)",
        chart.id, bytes ? "" : " checked", bytes ? "Inter-site bytes" : "Steps");
    panels += fmt::format("<div class=\"panel\"><h3>Loss against {} {}</h3>\n",
                          bytes ? "bytes between sites" : "steps",
                          bytes ? clock_badge(page.runs.front()) : "");
    panels += chart.series.empty() ? "<p class=\"empty\">No evaluations.</p>" : chart_html(chart);
    panels += "</div>\n";
    page.charts.push_back(chart_json(chart));
  }
  page.html += panels + "</div></section>\n";
}

std::string cells_csv(const Comparison& comparison) {
  std::string csv = "variant,seed,status,step,loss,simulated_s,payload_bytes,wire_bytes\n";
  for (const ComparedVariant& variant : comparison.variants) {
    for (const CellResult& run : variant.runs) {
      for (const CellEval& eval : run.evals) {
        const auto number = [](double value) {
          return std::isfinite(value) ? exact(value) : std::string{};
        };
        fmt::format_to(
            std::back_inserter(csv), "{},{},{},{},{},{},{},{}\n", csv_field(variant.name), run.seed,
            run.status == CellStatus::kOk ? "ok" : "failed", eval.step, number(eval.loss),
            number(eval.clock_s), number(eval.payload_bytes), number(eval.wire_bytes));
      }
    }
  }
  return csv;
}

}  // namespace isthmus::report
