// SPDX-License-Identifier: Apache-2.0
#include "app/compare/reference_curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "app/common/commands.h"
#include "app/common/text_table.h"
#include "app/compare/comparison_text.h"
#include "core/base/check.h"
#include "core/base/suggest.h"
#include "isthmus/errors.h"
#include "record/json_line.h"

namespace isthmus::app {
namespace {

std::string off_text(const report::CurvePoint& point) {
  return std::isfinite(point.loss)
             ? fmt::format("{:.2f} at step {}", report::distance(point), point.step)
             : fmt::format("failed before step {}", point.step);
}

std::string point_json(const report::CurvePoint& point) {
  return JsonLine()
      .add("step", point.step)
      .add("loss", point.loss)
      .add("reference", point.reference.mean)
      .add("low", point.band.low)
      .add("high", point.band.high)
      .add("normal", point.normal())
      .str();
}

}  // namespace

const Reference& reference_named(const std::string& spelling) {
  constexpr std::string_view kPrefix = "ref:";
  std::vector<std::string> known;
  for (const Reference& reference : references()) {
    known.push_back(fmt::format("{}{}", kPrefix, reference.name));
    if (known.back() == spelling) {
      return reference;
    }
  }
  throw UsageError(fmt::format("--against: no reference '{}'; there is {}", spelling, join(known)));
}

std::vector<report::CellResult> runs_of(const Reference& reference) {
  report::CellFile file = report::read_cells(reference.cells);
  ISTHMUS_CHECK(file.damaged == 0 && !file.cells.empty(), std::string(reference.name));
  return std::move(file.cells);
}

void check_evaluations(const std::vector<report::CellResult>& runs, const std::string& name,
                       const std::string& variant, const Config& config) {
  for (const report::CellResult& cell : runs) {
    if (cell.variant != variant) {
      continue;
    }
    const std::int64_t steps = total_steps(config);
    const std::int64_t every = config.eval.every.resolve(steps);
    if (steps != cell.evals.back().step || every != cell.evals.front().step) {
      throw ConfigError(fmt::format(
          "--against {}: variant '{}' has {} steps evaluated every {}, its reference runs {} "
          "every {}: leave train.steps, train.tokens and eval.every as they are",
          name, variant, steps, every, cell.evals.back().step, cell.evals.front().step));
    }
    return;
  }
}

bool ReferenceResult::normal() const {
  return std::all_of(checks.begin(), checks.end(), [](const auto& each) { return each.normal(); });
}

ReferenceResult against_reference(const std::string& name,
                                  const std::vector<report::CellResult>& runs,
                                  const std::vector<report::CellResult>& fresh) {
  std::set<std::int64_t> seeds;
  for (const report::CellResult& cell : runs) {
    seeds.insert(cell.seed);
  }
  return {.name = name,
          .program = runs.front().version,
          .reference_seeds = static_cast<int>(seeds.size()),
          .checks = report::check_curves(runs, fresh)};
}

std::string render_reference(const ReferenceResult& result, const Terminal& terminal) {
  std::string text =
      fmt::format("{}: {} new runs of each variant beside {} of isthmus {}\n\n", result.name,
                  result.checks.front().seeds, result.reference_seeds, result.program);
  TextTable table({"variant", "final loss", "reference", "band", "furthest, of the band"});
  std::vector<std::string> odd;
  for (const report::CurveCheck& check : result.checks) {
    const report::CurvePoint& last = check.points.back();
    table.add({check.variant, fmt::format("{:.4f}", last.loss),
               fmt::format("{:.4f}", last.reference.mean),
               fmt::format("{:.4f} to {:.4f}", last.band.low, last.band.high),
               off_text(check.furthest()) + (check.normal() ? "" : "  ODD")});
    if (!check.normal()) {
      odd.push_back(check.variant + (check.cause.empty() ? "" : fmt::format(" ({})", check.cause)));
    }
  }
  text += table.text(terminal) + "\n";
  if (odd.empty()) {
    return text + paragraph(fmt::format("This build trains as the reference did: no mean loss left "
                                        "its band. (A build that does leaves one by chance in at "
                                        "most {:.0f} of 100 checks.)",
                                        100 * report::kFalseAlarm),
                            0);
  }
  return text + paragraph(fmt::format("This build does not train as the reference did: {}. Chance "
                                      "alone does that in at most {:.0f} of 100 checks.",
                                      join(odd), 100 * report::kFalseAlarm),
                          0);
}

std::string reference_json(const ReferenceResult& result) {
  const auto check_json = [](const report::CurveCheck& check) {
    return JsonLine()
        .add("name", check.variant)
        .add("method", check.method)
        .add("seeds", check.seeds)
        .add("normal", check.normal())
        .add("furthest", report::distance(check.furthest()))
        .add("cause", check.cause)
        .add_list("points", check.points, point_json);
  };
  return JsonLine()
      .add("kind", "reference")
      .add("name", result.name)
      .add("program", result.program)
      .add("reference_seeds", result.reference_seeds)
      .add("false_alarm", report::kFalseAlarm)
      .add("normal", result.normal())
      .add_list("variants", result.checks, check_json)
      .str();
}

}  // namespace isthmus::app
