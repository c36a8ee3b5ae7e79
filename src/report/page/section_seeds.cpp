// SPDX-License-Identifier: Apache-2.0
// Seed by seed: final losses on one scale, and the trials that the rates were chosen by.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "report/data/text.h"
#include "report/page/axis.h"
#include "report/page/comparison_page.h"

namespace isthmus::report {
namespace {

/// One row a variant: a tick a seed on a common axis, the mean as a taller one.
std::string strip(const Comparison& comparison) {
  std::vector<double> losses;
  for (const ComparedVariant& variant : comparison.variants) {
    for (const CellResult& run : variant.runs) {
      losses.push_back(run.final_loss());
    }
  }
  const Axis axis = make_axis(losses, false, AxisUnit::kPlain, true);
  std::string rows;
  for (std::size_t v = 0; v < comparison.variants.size(); ++v) {
    const ComparedVariant& variant = comparison.variants[v];
    std::string marks;
    std::string text;
    for (const CellResult& run : variant.runs) {
      if (!std::isfinite(run.final_loss())) {
        text += fmt::format("{}seed {}: failed", text.empty() ? "" : ", ", run.seed);
        continue;
      }
      text += fmt::format("{}seed {}: {}", text.empty() ? "" : ", ", run.seed,
                          format_loss(run.final_loss()));
      fmt::format_to(
          std::back_inserter(marks), R"(<i style="left:{:.2f}%" title="seed {}: {}"></i>)",
          100 * axis.position(run.final_loss()), run.seed, format_loss(run.final_loss()));
    }
    if (comparison.results[v].finished > 0) {
      fmt::format_to(std::back_inserter(marks), R"(<b style="left:{:.2f}%"></b>)",
                     100 * axis.position(comparison.results[v].final_loss.mean));
    }
    rows += fmt::format(
        "<tr><th scope=\"row\">{}</th><td><div class=\"strip s{}\" role=\"img\" "
        "aria-label=\"{}\">{}</div></td></tr>",
        variant_tag(comparison, v), v % 7, escape_html(text), marks);
  }
  std::string ticks;
  for (const Tick& tick : axis.ticks(6)) {
    ticks += fmt::format("<span style=\"left:{:.2f}%\">{}</span>", 100 * tick.position,
                         escape_html(tick.label));
  }
  return fmt::format(
      "<table class=\"strips\"><tbody>{}<tr><th></th><td><div class=\"strip-axis\">{}</div></td>"
      "</tr></tbody></table>\n",
      rows, ticks);
}

std::string losses_table(const Comparison& comparison) {
  std::string head = "<th scope=\"col\"></th>";
  for (const CellResult& run : comparison.variants.front().runs) {
    head += fmt::format("<th scope=\"col\">seed {}</th>", run.seed);
  }
  std::string rows;
  for (std::size_t v = 0; v < comparison.variants.size(); ++v) {
    rows += concat("<tr><th scope=\"row\">", variant_tag(comparison, v), "</th>");
    for (const CellResult& run : comparison.variants[v].runs) {
      rows +=
          concat("<td>", std::isfinite(run.final_loss()) ? format_loss(run.final_loss()) : "failed",
                 "</td>");
    }
    rows += "</tr>";
  }
  return fmt::format(
      "<details><summary>Every final loss</summary><div class=\"scroll\"><table><thead><tr>{}</tr>"
      "</thead><tbody>{}</tbody></table></div></details>\n",
      head, rows);
}

double value_of(const std::string& text) { return std::strtod(text.c_str(), nullptr); }

/// A point of the grid, over the seeds of its trials.
struct TriedPoint {
  std::vector<std::pair<std::string, std::string>> tuned;
  double loss = 0;  // the mean; infinite: one failed
};

std::vector<const CellResult*> trials_of(const ComparisonFolder& folder,
                                         const ComparedVariant& variant) {
  std::vector<const CellResult*> trials;
  for (const CellResult& cell : folder.trials) {
    if (cell.variant == variant.name) {
      trials.push_back(&cell);
    }
  }
  std::ranges::sort(trials, [](const CellResult* a, const CellResult* b) {
    return std::ranges::lexicographical_compare(a->tuned, b->tuned, [](auto& x, auto& y) {
      return x.first != y.first ? x.first < y.first : value_of(x.second) < value_of(y.second);
    });
  });
  return trials;
}

std::vector<TriedPoint> points_of(const std::vector<const CellResult*>& trials) {
  std::vector<TriedPoint> points;
  std::vector<int> seeds;
  for (const CellResult* trial : trials) {
    auto at = std::ranges::find(points, trial->tuned, &TriedPoint::tuned);
    if (at == points.end()) {
      at = points.insert(at, {trial->tuned, 0});
      seeds.push_back(0);
    }
    int& count = seeds[static_cast<std::size_t>(at - points.begin())];
    const double before = at->loss * count;
    at->loss = (before + trial->final_loss()) / ++count;
  }
  return points;
}

std::string trial_seeds_text(const ComparedVariant& variant) {
  return variant.trial_seeds == 1 ? "one seed"
                                  : fmt::format("the mean of {} seeds", variant.trial_seeds);
}

/// A variant's trials as cells, in the order of their values; the better, the darker.
std::string tuning_row(const ComparisonFolder& folder, std::size_t v, std::size_t limit) {
  const ComparedVariant& variant = folder.comparison.variants[v];
  std::vector<TriedPoint> trials = points_of(trials_of(folder, variant));
  trials.resize(std::min(trials.size(), limit));
  double best = INFINITY;
  double worst = -INFINITY;
  for (const TriedPoint& trial : trials) {
    best = std::min(best, trial.loss);
    worst = std::isfinite(trial.loss) ? std::max(worst, trial.loss) : worst;
  }
  std::string cells;
  for (const TriedPoint& trial : trials) {
    const double loss = trial.loss;
    const double share = worst > best && std::isfinite(loss) ? (worst - loss) / (worst - best) : 0;
    std::string values;
    for (const auto& [key, value] : trial.tuned) {
      values += fmt::format("{}{} {}", values.empty() ? "" : ", ", key, value);
    }
    const bool chosen = trial.tuned == variant.tuned;
    cells += fmt::format(
        "<li class=\"{}\" style=\"--heat-share:{:.2f}\">{}<small>{}{}</small></li>",
        chosen ? "chosen" : "", share, std::isfinite(loss) ? format_loss(loss) : "failed",
        escape_html(values), chosen ? " · chosen" : "");
  }
  std::string edges;
  for (const TuningEdge& edge : variant.edges) {
    edges += fmt::format(
        "<p class=\"caution\"><b>(!)</b> {} = {} is the {} value tried: a better one may lie "
        "beyond; widen the space.</p>",
        escape_html(edge.key), escape_html(edge.value), edge.largest ? "largest" : "smallest");
  }
  return fmt::format("<h3>{}</h3><ul class=\"trials\">{}</ul>{}\n",
                     variant_tag(folder.comparison, v), cells, edges);
}

}  // namespace

void section_seeds(Page& page, const ComparisonFolder& folder) {
  const Comparison& comparison = folder.comparison;
  page.html += section_open("seeds", "Seeds");
  page.html +=
      "<p class=\"lead\">Final validation loss of each run, and its mean (long mark). The variants "
      "share initial weights and order of the data seed by seed, so what is judged are the "
      "differences within a seed.</p>\n";
  page.html += strip(comparison) + losses_table(comparison) + "</section>\n";
  page.html += section_open("tuning", "Tuning");
  if (folder.trials.empty()) {
    page.html +=
        "<p class=\"lead\">Nothing was tuned: the verdicts hold for the rates in the file and may "
        "turn with others.</p></section>\n";
    return;
  }
  page.html += fmt::format(
      "<p class=\"lead\">Final losses of the trials, {} a variant, on {} and on text that the "
      "verdicts do not read. The darker, the lower.</p>\n",
      comparison.variants.front().trials, trial_seeds_text(comparison.variants.front()));
  for (std::size_t v = 0; v < comparison.variants.size(); ++v) {
    page.html += tuning_row(folder, v, page.limits.rows_per_table);
  }
  page.html += "</section>\n";
}

}  // namespace isthmus::report
