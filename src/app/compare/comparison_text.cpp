// SPDX-License-Identifier: Apache-2.0
#include "app/compare/comparison_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>

#include "app/common/text_table.h"
#include "core/base/units.h"

namespace isthmus::app {
namespace {

using report::Comparison;
using report::ToTarget;

constexpr std::size_t kNameColumns = 18;
constexpr std::size_t kColumnGap = 2;

/// Cells padded to their column's width; text in the last column is folded into the room left.
class Columns {
 public:
  enum class Align { kLeft, kRight };
  explicit Columns(std::vector<std::pair<std::string, Align>> headings)
      : headings_(std::move(headings)) {}
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

  [[nodiscard]] std::string text(const Terminal& terminal) const {
    std::vector<std::string> first;
    for (const auto& [heading, align] : headings_) {
      first.push_back(heading);
    }
    std::string text = terminal.paint(Style::kDim, line(first)) + "\n";
    for (const auto& row : rows_) {
      text += folded(row);
    }
    return text;
  }

 private:
  [[nodiscard]] std::size_t width(std::size_t column) const {
    std::size_t widest = display_width(headings_[column].first);
    for (const auto& row : rows_) {
      widest = std::max(widest, display_width(row[column]));
    }
    return widest;
  }
  [[nodiscard]] std::string line(const std::vector<std::string>& cells) const {
    std::string text;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const bool last_text = i + 1 == cells.size() && headings_[i].second == Align::kLeft;
      const std::string spaces(last_text ? 0 : width(i) - display_width(cells[i]), ' ');
      text += headings_[i].second == Align::kRight ? spaces + cells[i] : cells[i] + spaces;
      text += std::string(kColumnGap, ' ');
    }
    text.erase(text.find_last_not_of(' ') + 1);
    return text;
  }
  [[nodiscard]] std::string folded(std::vector<std::string> row) const {
    if (headings_.back().second == Align::kRight) {
      return line(row) + "\n";
    }
    std::size_t before = 0;
    for (std::size_t i = 0; i + 1 < row.size(); ++i) {
      before += width(i) + kColumnGap;
    }
    std::string rest = wrapped(row.back(), before, kComparisonColumns);
    row.back() = rest.substr(before, rest.find('\n') - before);
    return line(row) + "\n" + rest.substr(rest.find('\n') + 1);
  }

  std::vector<std::pair<std::string, Align>> headings_;
  std::vector<std::vector<std::string>> rows_;
};
using Align = Columns::Align;

std::string interval_text(const report::Interval& interval, bool sign) {
  if (!std::isfinite(interval.low)) {
    return "";
  }
  return sign ? fmt::format("[{:+.4f}, {:+.4f}]", interval.low, interval.high)
              : fmt::format("[{:.4f}, {:.4f}]", interval.low, interval.high);
}

/// Names as the tables show them: cut to one width, from the end, else from the beginning, where
/// that leaves them apart; else whole.
std::vector<std::string> shown_names(const Comparison& comparison) {
  const auto end_of = [](const std::string& name) {  // names are ASCII
    return name.size() <= kNameColumns ? name : "~" + name.substr(name.size() - kNameColumns + 1);
  };
  std::vector<std::string> whole;
  std::vector<std::string> heads;
  std::vector<std::string> ends;
  for (const report::ComparedVariant& variant : comparison.variants) {
    whole.push_back(variant.name);
    heads.push_back(cut_to_width(variant.name, kNameColumns));
    ends.push_back(end_of(variant.name));
  }
  for (const auto& names : {heads, ends}) {
    if (std::set<std::string>(names.begin(), names.end()).size() == names.size()) {
      return names;
    }
  }
  return whole;
}

/// "inner.lr=0.004, outer.lr=0.7": without spaces, so that lines break between the keys.
std::string tuned_cell(const report::ComparedVariant& variant) {
  std::string text;
  for (const auto& [key, value] : variant.tuned) {
    text += fmt::format("{}{}={}", text.empty() ? "" : ", ", key, value);
  }
  text = text.empty() ? "not tuned" : text;
  return variant.edges.empty() ? text : text + " (!)";
}

std::string loss_table(const Comparison& comparison, const std::vector<std::string>& names,
                       const Terminal& terminal) {
  const std::size_t others = comparison.variants.size() - 1;
  const double percent = 100 * comparison.rules.confidence;
  const std::string& baseline = names[comparison.rules.baseline];
  Columns table(
      {{"final loss", Align::kLeft},
       {fmt::format("mean [{:g} %]", percent), Align::kLeft},
       {fmt::format("against {} [{:g} %{}]", baseline, percent, others > 1 ? " jointly" : ""),
        Align::kLeft},
       {"rates", Align::kLeft}});
  for (std::size_t v = 0; v < comparison.variants.size(); ++v) {
    const report::ComparedVariant& variant = comparison.variants[v];
    const report::VariantResult& result = comparison.results[v];
    std::string loss = "failed";
    if (result.finished > 0) {
      loss =
          fmt::format("{:.4f} {}", result.final_loss.mean, interval_text(result.interval, false));
    }
    if (result.failed > 0) {
      loss = fmt::format("failed {}/{}", result.failed, variant.runs.size());
    }
    std::string against = v == comparison.rules.baseline ? "baseline" : "not compared";
    if (result.against) {
      against = fmt::format("{:+.4f} {}", result.against->difference.mean,
                            interval_text(result.against->interval, true));
    }
    table.add({names[v], loss, against, tuned_cell(variant)});
  }
  return table.text(terminal);
}

std::string or_dash(double value, const std::function<std::string(double)>& text) {
  return std::isfinite(value) ? text(value) : "-";
}

/// "12x less" of the baseline's value.
std::string factor(double baseline, double value) {
  if (!std::isfinite(baseline) || !std::isfinite(value) || value <= 0) {
    return "-";
  }
  const double ratio = baseline / value;
  return ratio >= 100 ? fmt::format("{:.0f}x", ratio) : fmt::format("{:.3g}x", ratio);
}

std::string target_table(const Comparison& comparison, const std::vector<std::string>& names,
                         const Terminal& terminal) {
  const ToTarget& base = comparison.results[comparison.rules.baseline].to_target;
  const bool timed =
      std::any_of(comparison.results.begin(), comparison.results.end(),
                  [](const auto& each) { return !std::isnan(each.to_target.clock_s); });
  std::vector<std::pair<std::string, Align>> headings = {
      {"to the target", Align::kLeft}, {"reached", Align::kRight},      {"steps", Align::kRight},
      {"payload/site", Align::kRight}, {"on wire/site", Align::kRight}, {"fewer", Align::kRight}};
  if (timed) {
    headings.insert(headings.end(), {{"simulated time", Align::kRight}, {"less", Align::kRight}});
  }
  Columns table(headings);
  for (std::size_t v = 0; v < comparison.variants.size(); ++v) {
    const ToTarget& way = comparison.results[v].to_target;
    std::vector<std::string> cells = {
        names[v],
        fmt::format("{}/{}", way.reached, way.runs),
        or_dash(way.steps, [](double steps) { return with_commas(std::llround(steps)); }),
        or_dash(way.payload_bytes, human_bytes),
        or_dash(way.wire_bytes, human_bytes),
        factor(base.wire_bytes, way.wire_bytes)};
    if (timed) {
      cells.push_back(or_dash(way.clock_s, human_time));
      cells.push_back(factor(base.clock_s, way.clock_s));
    }
    table.add(std::move(cells));
  }
  return table.text(terminal);
}

std::string links_table(const Comparison& comparison, const std::vector<std::string>& names,
                        const Terminal& terminal) {
  const report::OtherLinks& other = comparison.other_links;
  std::vector<std::pair<std::string, Align>> headings = {{"time on other links", Align::kLeft}};
  for (const std::string& link : other.links) {
    headings.emplace_back(link, Align::kRight);
  }
  Columns table(headings);
  for (std::size_t v = 0; v < comparison.variants.size(); ++v) {
    std::vector<std::string> cells = {names[v]};
    const bool needs_simulating = !other.variants[v].obstacle.empty();
    for (const double seconds : other.seconds[v]) {
      cells.push_back(needs_simulating ? "needs simulating" : or_dash(seconds, human_time));
    }
    table.add(std::move(cells));
  }
  std::string text = table.text(terminal);
  for (std::size_t v = 0; v < comparison.variants.size(); ++v) {
    const std::string& why = other.variants[v].obstacle;
    if (!why.empty()) {
      text += terminal.paint(Style::kDim,
                             paragraph(fmt::format("{} needs simulating again on other links: {}",
                                                   comparison.variants[v].name, why),
                                       2));
    }
  }
  return text;
}

std::string target_words(const Comparison& comparison) {
  const report::ComparisonRules& rules = comparison.rules;
  if (!comparison.target) {
    return "none: the variant it is relative to has no loss";
  }
  std::string text = fmt::format("val loss {:.4f}", *comparison.target);
  if (!rules.target) {
    const report::VariantResult& reference = comparison.results[rules.target_relative_to];
    text += fmt::format(
        " ({:g} x the mean of {}{}{})", rules.target_factor,
        comparison.variants[rules.target_relative_to].name,
        reference.failed == 0 ? "" : fmt::format("'s {} finished runs", reference.finished),
        rules.floor > 0 ? " above the entropy" : "");
  }
  text +=
      fmt::format(", evaluated every {} steps, interpolated", with_commas(comparison.eval_every));
  if (rules.budget_steps > 0) {
    text += fmt::format(", within {} steps", with_commas(rules.budget_steps));
  }
  return rules.budget_s > 0 ? text + ", within " + human_time(rules.budget_s) : text;
}

std::string heading(const Comparison& comparison, const ComparisonSetting& setting,
                    const Terminal& terminal) {
  const report::ComparisonRules& rules = comparison.rules;
  const std::size_t seeds = comparison.variants.front().runs.size();
  std::string text;
  if (rules.quick) {
    text += terminal.paint(Style::kWarn, "NOT A RESULT: --quick, three seeds at a quarter length") +
            "\n";
  }
  text += terminal.paint(Style::kBold, rules.name) +
          fmt::format(": {} variants, {} paired seed{}, {}\n", comparison.variants.size(), seeds,
                      seeds == 1 ? "" : "s", setting.length);
  const auto row = [&text](const char* name, const std::string& words) {
    text += paragraph(fmt::format("{:<8}{}", name, words), 8);
  };
  row("clock", setting.clock);
  row("target", target_words(comparison));
  const std::string& baseline = comparison.variants[rules.baseline].name;
  std::string margin =
      fmt::format("{:.4f} ({:.3g} % of the mean of {}{})", comparison.margin, 100 * rules.margin,
                  baseline, rules.floor > 0 ? " above the entropy" : "");
  if (comparison.margin <= 0) {
    margin = fmt::format(
        "none: {} {}", baseline,
        comparison.results[rules.baseline].failed > 0 ? "failed" : "has no loss above the entropy");
  }
  if (rules.floor > 0) {
    margin += fmt::format(", entropy {:.4f}", rules.floor);
  }
  row("margin", margin);
  return text + "\n";
}

}  // namespace

std::string paragraph(std::string_view text, std::size_t indent) {
  const std::string folded = wrapped(text, 0, kComparisonColumns);
  std::string first(folded.substr(0, folded.find('\n') + 1));
  if (first.size() == folded.size()) {
    return first;
  }
  // The rest is folded anew, since it is narrower by the indent.
  std::string rest = folded.substr(first.size());
  std::replace(rest.begin(), rest.end(), '\n', ' ');
  rest.erase(rest.find_last_not_of(' ') + 1);
  return first + wrapped(rest, indent, kComparisonColumns);
}

ComparisonSetting setting_of(const Config& config) {
  ComparisonSetting setting;
  setting.length = fmt::format("{} steps", with_commas(total_steps(config)));
  if (config.train.global_batch_tokens > 0) {
    setting.length += fmt::format(" of {} tokens", with_commas(config.train.global_batch_tokens));
  }
  if (!runs_simulated(config)) {
    setting.clock = "none: no [[link]], so steps and bytes count and time does not";
    return setting;
  }
  setting.clock = "simulated";
  const auto seconds = [](Duration duration) { return human_time(in_seconds(duration)); };
  if (config.surrogate) {
    setting.clock += fmt::format(
        ", clock and bytes of a declared model of {} parameters at {} a step",
        parameters_text(config.surrogate->params), seconds(config.surrogate->step_time));
  } else if (config.sim.step_time > Duration{0}) {
    setting.clock += fmt::format(", {} a step", seconds(config.sim.step_time));
  }
  if (!config.links.empty()) {
    const LinkConfig& link = config.links.front();
    setting.clock += fmt::format(
        "; {}{}{}, {} round trip", link.trace.empty() ? "" : "a trace, in the mean ",
        human_rate(link.bits_per_s_up),
        link.loss > 0 ? fmt::format(", {:g} % loss", 100 * link.loss) : "", seconds(link.rtt));
    if (config.links.size() > 1) {
      setting.clock += fmt::format(" and {} more links", config.links.size() - 1);
    }
  }
  if (!config.faults.empty()) {
    setting.clock += fmt::format("; [[fault]] x {}", config.faults.size());
  }
  return setting;
}

std::string render_comparison(const Comparison& comparison, const ComparisonSetting& setting,
                              const Terminal& terminal) {
  std::string text = heading(comparison, setting, terminal);
  const std::vector<std::string> names = shown_names(comparison);
  text += loss_table(comparison, names, terminal) + "\n";
  if (comparison.target) {
    text += target_table(comparison, names, terminal) + "\n";
  }
  if (comparison.target && !comparison.other_links.links.empty()) {
    text += links_table(comparison, names, terminal) + "\n";
  }
  for (std::size_t v = 0; v < comparison.variants.size(); ++v) {
    const report::VariantResult& result = comparison.results[v];
    if (v == comparison.rules.baseline) {
      continue;
    }
    text += paragraph(
        fmt::format("{}: {}{}", comparison.variants[v].name, result.verdict,
                    result.no_claim.empty() ? "" : fmt::format(" No claim: {}.", result.no_claim)),
        2);
  }
  for (const std::string& note : comparison.notes) {
    text += terminal.paint(Style::kDim, paragraph("note: " + note, 2));
  }
  if (comparison.rules.quick) {
    text += terminal.paint(Style::kWarn, "NOT A RESULT: run it without --quick") + "\n";
  }
  return text;
}

}  // namespace isthmus::app
