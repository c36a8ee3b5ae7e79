// SPDX-License-Identifier: Apache-2.0
// The top of a comparison's page: its verdicts, the table they rest on, and their limits.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/units.h"
#include "report/data/text.h"
#include "report/page/comparison_page.h"
#include "report/page/line_chart.h"

namespace isthmus::report {
namespace {

std::string signed_loss(double value) {
  return fmt::format("{}{:.4f}", value < 0 ? "−" : "+", std::abs(value));
}

std::string interval_text(const Interval& interval) {
  return std::isfinite(interval.low)
             ? fmt::format("{} to {}", format_loss(interval.low), format_loss(interval.high))
             : std::string{};
}

/// Why nothing here is a result; empty when it may be one.
std::string not_a_result(const Comparison& comparison) {
  if (comparison.rules.quick) {
    return "three seeds at a quarter of the length, as <code>--quick</code> asks";
  }
  const std::size_t seeds = comparison.variants.front().runs.size();
  return seeds < static_cast<std::size_t>(kFewestPairs)
             ? fmt::format("{} seed{}, and below {} nothing can be told apart", seeds,
                           seeds == 1 ? "" : "s", kFewestPairs)
             : std::string{};
}

std::string verdicts(const Comparison& comparison) {
  std::string html;
  const std::string& baseline = comparison.variants[comparison.rules.baseline].name;
  for (std::size_t v = 0; v < comparison.variants.size(); ++v) {
    if (v == comparison.rules.baseline) {
      continue;
    }
    const VariantResult& result = comparison.results[v];
    html += fmt::format("<p class=\"verdict\"><b>{}</b> against <b>{}</b>: {}{}</p>\n",
                        escape_html(comparison.variants[v].name), escape_html(baseline),
                        escape_html(result.verdict),
                        result.no_claim.empty()
                            ? std::string{}
                            : fmt::format(" <span class=\"badge\">no claim</span> {}.",
                                          escape_html(result.no_claim)));
  }
  return html;
}

std::string against_cell(const Comparison& comparison, std::size_t v) {
  const VariantResult& result = comparison.results[v];
  if (v == comparison.rules.baseline) {
    return "baseline<small></small>";
  }
  if (!result.against) {
    return "not compared<small></small>";
  }
  const AgainstBaseline& against = *result.against;
  return fmt::format("{}<small>{} to {}</small>", signed_loss(against.difference.mean),
                     signed_loss(against.interval.low), signed_loss(against.interval.high));
}

std::string fewer(double baseline, double value) {
  const double ratio = baseline / value;
  if (!std::isfinite(ratio) || !(value > 0) || std::abs(ratio - 1) < 0.005) {
    return {};
  }
  return ratio > 1 ? format_ratio(ratio) + "× less" : format_ratio(1 / ratio) + "× more";
}

std::string way_cell(double value, double baseline, const std::string& text) {
  return std::isfinite(value) ? fmt::format("{}<small>{}</small>", escape_html(text),
                                            escape_html(fewer(baseline, value)))
                              : "missed<small></small>";
}

struct Row {
  std::string html;
  void add(const std::string& name, const std::string& cell) {
    html += fmt::format("<td data-name=\"{}\">{}</td>", name, cell);
  }
};

std::string row_of(const RunView& run, const Comparison& comparison, std::size_t v, bool timed) {
  const ComparedVariant& variant = comparison.variants[v];
  const VariantResult& result = comparison.results[v];
  const ToTarget& way = result.to_target;
  const ToTarget& base = comparison.results[comparison.rules.baseline].to_target;
  Row row;
  row.add("Final loss",
          result.failed > 0
              ? fmt::format("failed {}/{}<small>{}</small>", result.failed, variant.runs.size(),
                            escape_html(result.cause))
              : fmt::format("{}<small>{}</small>", format_loss(result.final_loss.mean),
                            interval_text(result.interval)));
  row.add("Against the baseline", against_cell(comparison, v));
  if (comparison.target) {
    row.add("Reached the target", fmt::format("{}/{}<small></small>", way.reached, way.runs));
    // On a narrow screen these names stand beside the values, in the place of the table's head.
    const char* const of = run.clock.surrogate ? " [surrogate]" : "";
    row.add("Steps to the target",
            way_cell(way.steps, base.steps, format_count(std::round(way.steps))));
    row.add(concat("Bytes to the target", of),
            way_cell(way.wire_bytes, base.wire_bytes, human_bytes(way.wire_bytes)));
    if (timed) {
      row.add(concat("Simulated time to the target", of),
              way_cell(way.clock_s, base.clock_s, format_seconds(way.clock_s)));
    }
  }
  if (timed) {
    row.add("Utilisation",
            fmt::format("{}<small></small>", format_percent(mean_utilisation(variant))));
  }
  std::string rates = variant.tuned.empty() ? "not tuned" : "";
  for (const auto& [key, value] : variant.tuned) {
    rates += fmt::format("{}{} {}", rates.empty() ? "" : ", ", key, value);
  }
  return fmt::format("<tr><th scope=\"row\">{}<small>{}{}</small></th>{}</tr>\n",
                     variant_tag(comparison, v), escape_html(rates),
                     variant.edges.empty() ? "" : " · (!) at an edge of what was tried", row.html);
}

std::string table(const Page& page, const Comparison& comparison) {
  const double percent = 100 * comparison.rules.confidence;
  const bool timed = all_simulated(page.runs);
  std::string head = "<th scope=\"col\">Variant</th>";
  const auto column = [&](const char* name, const std::string& small) {
    head += fmt::format("<th scope=\"col\">{}<small>{}</small></th>", name, small);
  };
  column("Final loss", fmt::format("mean, {:g} %", percent));
  column("Against the baseline", fmt::format("paired, {:g} %{}", percent,
                                             comparison.variants.size() > 2 ? " jointly" : ""));
  if (comparison.target) {
    column("Reached", "the target");
    column("Steps", "to the target");
    column("Bytes", concat("to the target, a site", clock_badge(page.runs.front())));
    if (timed) {
      column("Simulated time", concat("to the target", clock_badge(page.runs.front())));
    }
  }
  if (timed) {
    column("Utilisation", "compute share");
  }
  std::string rows;
  for (std::size_t v = 0; v < comparison.variants.size(); ++v) {
    rows += row_of(page.runs[v], comparison, v, timed);
  }
  return fmt::format(
      "<div class=\"scroll\"><table class=\"summary\"><thead><tr>{}</tr></thead><tbody>{}</tbody>"
      "</table></div>\n",
      head, rows);
}

std::string ground_rules(const Comparison& comparison) {
  const ComparisonRules& rules = comparison.rules;
  const std::size_t seeds = comparison.variants.front().runs.size();
  const std::string above = rules.floor > 0 ? " above the data's entropy" : "";
  std::string text = fmt::format("{} paired seed{}", seeds, seeds == 1 ? "" : "s");
  if (comparison.margin > 0) {  // else the verdicts say why there is none
    text += fmt::format("; margin of equivalence {:.4f} nats ({:g} % of the mean of {}{})",
                        comparison.margin, 100 * rules.margin,
                        comparison.variants[rules.baseline].name, above);
  }
  if (comparison.target) {
    text += fmt::format("; target: validation loss {:.4f}", *comparison.target);
    if (!rules.target) {
      text += fmt::format(", {:g} × the mean of {}{}", rules.target_factor,
                          comparison.variants[rules.target_relative_to].name, above);
    }
    text += fmt::format(", between evaluations {} steps apart", comparison.eval_every);
  }
  return fmt::format("<p class=\"hint\">{}.</p>\n", escape_html(text));
}

std::string clock_note(const Page& page) {
  const RunView& run = page.runs.front();
  if (!run.clock.simulated) {
    return "<p class=\"note\">These runs trained on real threads of one machine; their time says "
           "nothing about links and is left out.</p>\n";
  }
  return fmt::format(
      "<p class=\"note\">{} {}</p>\n", clock_badge(run),
      run.clock.surrogate
          ? fmt::format(
                "Clock and byte counts are those of a declared model of {}. The loss curves "
                "are the small model's, which is what really learned.",
                escape_html(run.clock.basis))
          : fmt::format("Seconds are simulated: they rest on {} and on the declared links.",
                        escape_html(run.clock.basis)));
}

}  // namespace

double mean_utilisation(const ComparedVariant& variant) {
  double sum = 0;
  int finished = 0;
  for (const CellResult& run : variant.runs) {
    if (run.status == CellStatus::kOk) {
      sum += run.utilisation;
      ++finished;
    }
  }
  return finished == 0 ? kNothing : sum / finished;
}

std::string variant_tag(const Comparison& comparison, std::size_t variant) {
  return fmt::format("<span class=\"run\">{}{}</span>", line_key(static_cast<int>(variant)),
                     escape_html(comparison.variants[variant].name));
}

void section_claims(Page& page, const ComparisonFolder& folder) {
  const Comparison& comparison = folder.comparison;
  page.html += "<section id=\"verdict\">";
  if (const std::string why = not_a_result(comparison); !why.empty()) {
    page.html += fmt::format("<p class=\"banner\"><b>Not a result:</b> {}.</p>\n", why);
  }
  page.html +=
      verdicts(comparison) + table(page, comparison) + ground_rules(comparison) + clock_note(page);
  std::string notes;
  for (const std::string& note : comparison.notes) {
    notes += fmt::format("<li>{}</li>", escape_html(note));
  }
  std::vector<std::string> warnings = folder.warnings;
  for (const RunView& run : page.runs) {
    for (const std::string& warning : run.data.warnings) {
      warnings.push_back(concat(run.data.label, ": ", warning));
    }
  }
  for (const std::string& warning : warnings) {
    notes += fmt::format("<li>about the input: {}</li>", escape_html(warning));
  }
  if (!notes.empty()) {
    page.html += fmt::format(
        "<details class=\"warnings\" open><summary>What limits these verdicts</summary><ul>{}</ul>"
        "</details>\n",
        notes);
  }
  page.html += "</section>\n";
}

}  // namespace isthmus::report
