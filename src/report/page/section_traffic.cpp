// SPDX-License-Identifier: Apache-2.0
// Traffic between sites, and the cost of each round.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <utility>

#include "core/base/units.h"
#include "report/data/text.h"
#include "report/page/line_chart.h"
#include "report/page/page.h"

namespace isthmus::report {
namespace {

constexpr std::size_t kMaxMatrix = 16;

std::string name_of(const RunView& run, std::size_t worker) {
  return worker < run.worker_names.size() ? run.worker_names[worker]
                                          : fmt::format("worker {}", worker);
}

std::string matrix_of(const Page& page, std::size_t index) {
  const RunView& run = page.runs[index];
  const auto& traffic = run.data.summary.traffic;
  const std::size_t size = std::min({traffic.size(), kMaxMatrix, page.limits.workers_per_run});
  if (size < 2) {
    return {};
  }
  double most = 0;
  for (const auto& row : traffic) {
    for (const double bytes : row) {
      most = std::isfinite(bytes) ? std::max(most, bytes) : most;
    }
  }
  std::string head = "<th scope=\"col\">from ↓ to →</th>";
  std::string rows;
  for (std::size_t to = 0; to < size; ++to) {
    head += fmt::format("<th scope=\"col\">{}</th>", escape_html(name_of(run, to)));
  }
  for (std::size_t from = 0; from < size; ++from) {
    rows += fmt::format("<tr><th scope=\"row\">{}</th>", escape_html(name_of(run, from)));
    for (std::size_t to = 0; to < size; ++to) {
      const double bytes = to < traffic[from].size() ? traffic[from][to] : kNothing;
      const double share = most > 0 && bytes > 0 ? bytes / most : 0;
      rows +=
          from == to
              ? std::string{"<td class=\"self\">·</td>"}
              : fmt::format("<td style=\"--heat-share:{:.2f}\" title=\"{} bytes\">{}</td>", share,
                            escape_html(format_count(bytes)), escape_html(human_bytes(bytes)));
    }
    rows += "</tr>";
  }
  return fmt::format(
      "<div><h3>{} {}</h3><div class=\"scroll\"><table "
      "class=\"matrix\"><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>{}</div>\n",
      run_tag(page, index), clock_badge(run), head, rows,
      first_of_hint(size, traffic.size(), "workers"));
}

struct FragmentSum {
  double rounds = 0, payload = 0, wire = 0, wait = 0;
  double first_norm = kNothing, last_norm = kNothing;
  double first_cosine = kNothing, last_cosine = kNothing;
  double first_error = kNothing, last_error = kNothing;
};

void take(double value, double& first, double& last) {
  first = std::isnan(first) ? value : first;
  last = value;
}

std::map<std::int64_t, FragmentSum> fragment_sums(const RunView& run) {
  std::map<std::int64_t, FragmentSum> sums;
  for (const RoundRecord& round : run.data.rounds) {
    FragmentSum& sum = sums[round.fragment];
    sum.rounds += 1;
    sum.payload += round.payload_bytes;
    sum.wire += round.wire_bytes;
    sum.wait += std::isfinite(round.wait_s) ? round.wait_s : 0;
    take(round.delta_norm, sum.first_norm, sum.last_norm);
    take(round.cosine, sum.first_cosine, sum.last_cosine);
    take(round.codec_error, sum.first_error, sum.last_error);
  }
  return sums;
}

std::string first_and_last(double first, double last) {
  return std::isnan(first) ? "–" : concat(format_number(first), " → ", format_number(last));
}

std::string fragment_rows(const std::map<std::int64_t, FragmentSum>& sums, std::size_t limit) {
  std::string rows;
  std::size_t shown = 0;
  for (const auto& [fragment, sum] : sums) {
    if (shown++ == limit) {
      break;
    }
    rows += fmt::format(
        "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{} → "
        "{}</td><td>{}</td><td>{}</td></tr>",
        fragment, format_count(sum.rounds), human_bytes(sum.payload / sum.rounds),
        human_bytes(sum.wire / sum.rounds), format_seconds(sum.wait / sum.rounds),
        format_number(sum.first_norm), format_number(sum.last_norm),
        first_and_last(sum.first_cosine, sum.last_cosine),
        first_and_last(sum.first_error, sum.last_error));
  }
  return rows;
}

std::string round_row(const RoundRecord& round) {
  return fmt::format(
      "<tr><td>{}{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</"
      "td><td>{}</td><td>{}</td></tr>",
      round.sent, round.closing ? " (closing)" : "", round.applied, round.fragment,
      human_bytes(round.payload_bytes), human_bytes(round.wire_bytes), format_count(round.members),
      format_seconds(round.wait_s), format_number(round.delta_norm), format_number(round.cosine),
      format_number(round.codec_error));
}

/// Every round, or the first and last ones when there are too many.
std::string all_rounds(const RunView& run, std::size_t limit) {
  const std::vector<RoundRecord>& rounds = run.data.rounds;
  std::string rows;
  const std::size_t half = std::max<std::size_t>(limit / 2, 1);
  const bool cut = rounds.size() > 2 * half;
  for (std::size_t i = 0; i < rounds.size(); ++i) {
    if (cut && i == half) {
      rows += fmt::format(
          "<tr><td colspan=\"10\" class=\"cut\">… {} rounds left out (all are in metrics.jsonl) "
          "…</td></tr>",
          format_count(static_cast<double>(rounds.size() - 2 * half)));
      i = rounds.size() - half;
    }
    rows += round_row(rounds[i]);
  }
  return fmt::format(
      "<details><summary>Every round of {}</summary><div class=\"scroll\"><table><thead><tr>"
      "<th scope=\"col\">Sent after step</th><th scope=\"col\">Applied</th><th "
      "scope=\"col\">Fragment</th>"
      "<th scope=\"col\">Payload</th><th scope=\"col\">Wire</th><th scope=\"col\">Members</th>"
      "<th scope=\"col\">Wait</th><th "
      "scope=\"col\">‖Δ‖</th><th scope=\"col\">Agreement</th><th scope=\"col\">Codec "
      "error</th></tr></thead><tbody>{}</tbody></table></div></details>\n",
      escape_html(run.data.label), rows);
}

/// The cost of the closing round, as a paragraph; nothing if no window was left over.
std::string closing_note(const std::vector<RoundRecord>& rounds) {
  double count = 0, payload = 0, wire = 0, wait = 0;
  for (const RoundRecord& round : rounds) {
    if (!round.closing) continue;
    count += 1;
    payload += round.payload_bytes;
    wire += round.wire_bytes;
    wait += std::isfinite(round.wait_s) ? round.wait_s : 0;
  }
  if (count == 0) return "";
  return fmt::format(
      "<p>The closing round carried the steps after the last regular round: {} fragment{}, {} "
      "of values and {} on the wire by one worker, {} waited for.</p>\n",
      format_count(count), count == 1 ? "" : "s", human_bytes(payload), human_bytes(wire),
      format_seconds(wait));
}

std::string rounds_of(const Page& page, std::size_t index) {
  const RunView& run = page.runs[index];
  std::string html = fmt::format("<h3>{} {}</h3>", run_tag(page, index), clock_badge(run));
  if (run.data.rounds.empty()) {
    return html + "<p class=\"empty\">No rounds: nothing was exchanged.</p>\n";
  }
  const std::map<std::int64_t, FragmentSum> sums = fragment_sums(run);
  const std::size_t limit = page.limits.rows_per_table;
  html += fmt::format(
      "<div class=\"scroll\"><table><thead><tr><th scope=\"col\">Fragment</th><th "
      "scope=\"col\">Rounds</th>"
      "<th scope=\"col\">Payload<small>a round</small></th><th scope=\"col\">Wire<small>a "
      "round</small></th>"
      "<th scope=\"col\">Wait<small>a round</small></th><th scope=\"col\">‖Δ‖<small>first → "
      "last</small></th><th scope=\"col\">Agreement<small>first → last</small></th>"
      "<th scope=\"col\">Codec error<small>first → last</small></th>"
      "</tr></thead><tbody>{}</tbody></table></div>{}\n",
      fragment_rows(sums, limit),
      first_of_hint(std::min(limit, sums.size()), sums.size(), "fragments"));
  return html + closing_note(run.data.rounds) + all_rounds(run, page.limits.rounds_per_run);
}

/// A number of each round against the step at which the round was applied, a line a fragment.
struct RoundChart {
  double RoundRecord::*number;
  LineChart chart;
};

LineChart drawn(Page& page, RoundChart round_chart) {
  LineChart& chart = round_chart.chart;
  chart.x_label = "inner step at which the round was applied";
  for (std::size_t i = 0; i < page.runs.size(); ++i) {
    std::map<std::int64_t, std::vector<Point>> by_fragment;
    for (const RoundRecord& round : page.runs[i].data.rounds) {
      const double number = round.*round_chart.number;
      if (std::isfinite(number) && (number > 0 || !chart.log_y)) {
        by_fragment[round.fragment].push_back({static_cast<double>(round.applied), number});
      }
    }
    const std::size_t drawn = std::min(by_fragment.size(), page.limits.fragments_drawn());
    if (drawn < by_fragment.size()) {
      chart.description += fmt::format(" Only the first {} of the {} fragments of {} are drawn.",
                                       drawn, by_fragment.size(), page.runs[i].data.label);
      page.fragments_left_out = true;
    }
    const std::size_t share = page.limits.points_per_series / std::max<std::size_t>(drawn, 1);
    std::size_t next = 0;
    for (const auto& [fragment, points] : by_fragment) {
      if (next++ == drawn) {
        break;
      }
      page.decimated = page.decimated || points.size() > share;
      chart.series.push_back(
          {.label =
               page.runs[i].data.label +
               (by_fragment.size() > 1 ? fmt::format(" fragment {}", fragment) : std::string{}),
           .colour = static_cast<int>(i),
           .marks = points.size() <= 40,
           .points = decimate(points, share)});
    }
  }
  return std::move(chart);
}

/// Those that have something to draw: ddp and spsa measure neither agreement nor codec error, and a
/// lossless codec has no error.
std::vector<LineChart> round_charts(Page& page) {
  std::vector<LineChart> charts = {
      drawn(page,
            {.number = &RoundRecord::delta_norm,
             .chart = {.id = "delta-norm",
                       .y_label = "‖Δ‖ of the mean (log scale)",
                       .description = "Norm of the reduced outer gradient (ddp: gradient) of each "
                                      "round.",
                       .log_y = true}}),
      drawn(page,
            {.number = &RoundRecord::cosine,
             .chart = {.id = "agreement",
                       .y_label = "agreement: cosine of a contribution with the mean",
                       .description = "Cosine between each worker's contribution and the mean that "
                                      "came back, mean over the workers, of each round."}}),
      drawn(page, {.number = &RoundRecord::codec_error,
                   .chart = {.id = "codec-error",
                             .y_label = "codec error, relative (log scale)",
                             .description =
                                 "Norm of what the codec lost of a contribution over the norm of "
                                 "the contribution, mean over the workers, of each round.",
                             .log_y = true}})};
  std::erase_if(charts, [](const LineChart& chart) { return chart.series.empty(); });
  return charts;
}

/// The run of each line; the charts have one line a fragment, all in their run's colour.
std::string round_legend(const Page& page) {
  std::string html = "<p class=\"legend\">";
  bool fragments = false;
  for (std::size_t i = 0; i < page.runs.size(); ++i) {
    html += concat("<span>", run_tag(page, i), "</span>");
    fragments = fragments || fragment_sums(page.runs[i]).size() > 1;
  }
  return html + (fragments ? "<span class=\"hint\">one line a fragment</span></p>\n" : "</p>\n");
}

/// How to read an agreement: its value if workers have nothing in common.
std::string agreement_hint(const Page& page) {
  double most = 0;
  for (const RunView& run : page.runs) {
    for (const RoundRecord& round : run.data.rounds) {
      most = std::isfinite(round.cosine) && round.members > most ? round.members : most;
    }
  }
  if (most < 2) {
    return {};
  }
  return fmt::format(
      "<p class=\"hint\">Agreement is 1 when all workers contribute the same, and 1/√M when M "
      "contributions of equal norm are orthogonal: {} for {} workers.</p>\n",
      format_number(1 / std::sqrt(most)), format_count(most));
}

}  // namespace

void section_traffic(Page& page) {
  std::string matrices;
  std::string rounds;
  for (std::size_t i = 0; i < page.runs.size(); ++i) {
    matrices += matrix_of(page, i);
    rounds += rounds_of(page, i);
  }
  if (!matrices.empty()) {
    page.html += section_open("traffic", "Traffic between workers") +
                 "<p class=\"lead\">Bytes on the wire over the whole run, row to column.</p>\n" +
                 "<div class=\"side-by-side\">" + matrices + "</div></section>\n";
  }
  page.html += section_open("rounds", "Rounds");
  page.html +=
      "<p class=\"lead\">A round is one all-reduce of a fragment, a part of the model. Bytes are "
      "those that one worker sent.</p>\n";
  const std::vector<LineChart> charts = round_charts(page);
  if (!charts.empty()) page.html += round_legend(page);
  for (const LineChart& chart : charts) {
    page.html += chart_html(chart);
    page.html += chart.id == "agreement" ? agreement_hint(page) : std::string{};
    page.charts.push_back(chart_json(chart));
  }
  if (page.fragments_left_out) {
    page.html += "<p class=\"hint\">The chart draws the first fragments only.</p>\n";
  }
  page.html += rounds + "</section>\n";
}

}  // namespace isthmus::report
