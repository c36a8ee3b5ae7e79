// SPDX-License-Identifier: Apache-2.0
#include "app/compare/comparison_estimate.h"

#include <fmt/format.h>

#include "app/common/text_table.h"
#include "core/base/units.h"
#include "record/json_line.h"

namespace isthmus::app {
namespace {

const std::string& name_of(const Experiment& experiment, const Cell& cell) {
  return experiment.variants()[cell.variant].name;
}

std::string point_text(const Experiment& experiment, const ComparisonPlan& plan, const Cell& cell) {
  if (cell.stage == report::CellStage::kSeed && plan.tuned()) {
    return "the values that tuning chooses";
  }
  std::string text;
  for (const Setting& value : cell.point) {
    text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", value.key, value.value);
  }
  (void)experiment;
  return text;
}

}  // namespace

ComparisonEstimate estimate_comparison(const Experiment& experiment, const ComparisonPlan& plan,
                                       const std::set<std::string>& known, const JobLimit& jobs) {
  ComparisonEstimate estimate{.cells = plan.outline(), .total = plan.total(), .jobs = jobs};
  for (const Cell& cell : estimate.cells) {
    // The key of a run is known once its rates are.
    const bool certain = cell.stage == report::CellStage::kTune || !plan.tuned();
    estimate.done.push_back(certain && known.contains(cell.key));
    estimate.cost += estimate.done.back() ? 0 : cell.cost;
    if (cell.stage == report::CellStage::kTune && cell.number == 0) {
      estimate.cost +=
          static_cast<double>(plan.follow_ups() * plan.trial_seeds().size()) * cell.cost;
    }
    const bool own = cell.config.train.trainer != "external";
    if (own && cell.stage == report::CellStage::kSeed && cell.number == 0) {
      estimate.variants.push_back(
          {name_of(experiment, cell), estimate_run(cell.config, cell.simulated)});
    }
  }
  if (!estimate.variants.empty()) {
    estimate.flops_per_s = measured_speed(estimate.cells.front().config);
  }
  return estimate;
}

std::string render_estimate(const Experiment& experiment, const ComparisonPlan& plan,
                            const ComparisonEstimate& estimate, const Terminal& terminal) {
  const Config& config = estimate.cells.front().config;
  std::string text = fmt::format("{}: would compare {} variants, nothing was written\n\n",
                                 config.run.name, plan.variants().size());
  TextTable variants(
      {"variant", "method", "steps", "sent by a site", "simulated", "memory", "role"});
  for (std::size_t i = 0; i < estimate.variants.size(); ++i) {
    const auto& [name, run] = estimate.variants[i];
    const ExperimentVariant& variant = experiment.variants()[plan.variants()[i]];
    const Config own = experiment.config(plan.variants()[i], {});
    std::string tuned;
    for (const TuneAxis& axis : variant.space) {
      tuned += fmt::format("{}{} values of {}", tuned.empty() ? "" : " x ", axis.values.size(),
                           axis.key);
    }
    variants.add({cut_to_width(name, 20), own.method, with_commas(run.steps),
                  human_bytes(static_cast<double>(run.wire_bytes)),
                  run.prediction ? human_time(run.prediction->predicted_s) : "-",
                  human_bytes(static_cast<double>(run.memory_bytes)),
                  i == plan.baseline() ? "baseline" : ""});
  }
  if (!estimate.variants.empty()) text += variants.text(terminal) + "\n";
  TextTable cells({"cell", "seed", "steps", "time", "values"});
  for (std::size_t i = 0; i < estimate.cells.size(); ++i) {
    const Cell& cell = estimate.cells[i];
    cells.add({cell.directory, fmt::format("{}", cell.seed), with_commas(total_steps(cell.config)),
               estimate.done[i]        ? "done"
               : estimate.knows_time() ? human_time(cell.cost / estimate.flops_per_s)
                                       : "-",
               point_text(experiment, plan, cell)});
  }
  text += cells.text(terminal) + "\n";
  if (plan.tuned()) {
    text += fmt::format("{} more trials of each variant follow its grid{}\n", plan.follow_ups(),
                        plan.trial_seeds().size() == 1
                            ? ""
                            : fmt::format(", each on {} seeds", plan.trial_seeds().size()));
  }
  text += fmt::format(
      "{} cells, {} at a time ({}): {}\n", estimate.total, estimate.jobs.jobs, estimate.jobs.reason,
      estimate.knows_time() ? fmt::format("about {} from now", human_time(estimate.wall_s()))
                            : std::string("a program trains them, whose speed is not known"));
  return text;
}

std::string estimate_json(const Experiment& experiment, const ComparisonEstimate& estimate) {
  std::vector<std::string> cells;
  for (std::size_t i = 0; i < estimate.cells.size(); ++i) {
    const Cell& cell = estimate.cells[i];
    JsonLine tuned;
    for (const Setting& value : cell.point) {
      tuned.add(value.key, value.value);
    }
    JsonLine line;
    line.add("directory", cell.directory)
        .add("variant", name_of(experiment, cell))
        .add("stage", cell.stage == report::CellStage::kTune ? "tune" : "seed")
        .add("seed", cell.seed)
        .add("key", cell.key)
        .add("steps", total_steps(cell.config))
        .add("tuned", tuned);
    if (estimate.knows_time()) {
      line.add("cost_flop", cell.cost).add("wall_s", cell.cost / estimate.flops_per_s);
    } else {
      line.add_null("cost_flop").add_null("wall_s");
    }
    cells.push_back(line.add("done", static_cast<bool>(estimate.done[i])).str());
  }
  JsonLine line;
  line.add("kind", "comparison_plan").add("total", estimate.total).add("jobs", estimate.jobs.jobs);
  estimate.knows_time() ? line.add("wall_s", estimate.wall_s()) : line.add_null("wall_s");
  line.add_list("variants", estimate.variants, [](const auto& variant) {
    return JsonLine().add("name", variant.name).add_raw("run", estimate_json(variant.run));
  });
  return line.add_raw("cells", json_array(cells)).str();
}

}  // namespace isthmus::app
