// SPDX-License-Identifier: Apache-2.0
#include "app/compare/comparison_files.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "app/compare/cell_program.h"
#include "core/base/json_input.h"
#include "record/build_info.h"
#include "record/run_lock.h"

namespace isthmus::app {
namespace {

using report::CellStatus;

std::string tuned_json(const report::ComparedVariant& variant) {
  JsonLine line;
  for (const auto& [key, value] : variant.tuned) {
    line.add(key, value);
  }
  return line.str();
}

JsonLine edge_json(const report::TuningEdge& edge) {
  const char* const side = edge.largest ? "largest" : "smallest";
  return JsonLine().add("key", edge.key).add("value", edge.value).add("side", side);
}

std::string run_json(const report::CellResult& run, const report::Comparison& comparison) {
  JsonLine line;
  line.add("seed", run.seed).add("status", run.status == CellStatus::kOk ? "ok" : "failed");
  line.add("final_eval_loss", run.final_loss()).add("key", run.key);
  line.add_or_null("directory", run.directory);
  const auto there = comparison.target ? report::reaching(run, *comparison.target, comparison.rules)
                                       : std::nullopt;
  if (there) {
    JsonLine way;
    way.add("step", there->step).add("bytes_payload", there->payload_bytes);
    way.add("bytes_wire", there->wire_bytes);
    way.add_or_null("simulated_s", there->clock_s);
    line.add_raw("to_target", way.str());
  } else {
    line.add_null("to_target");
  }
  return line.str();
}

JsonLine spread_json(const report::Spread& spread, const report::Interval& interval) {
  JsonLine line;
  line.add("n", spread.n).add("mean", spread.mean).add("sd", spread.deviation);
  line.add("low", interval.low).add("high", interval.high);
  return line;
}

std::string against_json(const report::AgainstBaseline& against) {
  return spread_json(against.difference, against.interval)
      .add("p", against.p)
      .add("equivalence_p", against.equivalence_p)
      .add("detectable", against.detectable)
      .add("different", against.apart)
      .add("equivalent", against.within_margin)
      .str();
}

std::string way_json(const report::ToTarget& way) {
  JsonLine line;
  line.add("reached", way.reached).add("runs", way.runs).add("steps", way.steps);
  line.add("bytes_payload", way.payload_bytes).add("bytes_wire", way.wire_bytes);
  line.add_or_null("simulated_s", way.clock_s);
  return line.str();
}

/// {"1Gbit/s,30ms": seconds, ...}; null where the variant needs simulating again
std::string links_json(const report::OtherLinks& other, std::size_t variant) {
  JsonLine line;
  for (std::size_t i = 0; i < other.links.size(); ++i) {
    line.add_or_null(other.links[i], other.seconds[variant][i]);
  }
  return line.str();
}

std::string variant_json(const report::Comparison& comparison, std::size_t v) {
  const report::ComparedVariant& variant = comparison.variants[v];
  const report::VariantResult& result = comparison.results[v];
  JsonLine line;
  line.add("name", variant.name).add("method", variant.method);
  line.add("baseline", v == comparison.rules.baseline);
  line.add_raw("tuned", variant.tuned.empty() ? "null" : tuned_json(variant));
  line.add("trials", variant.trials).add("trial_seeds", variant.trial_seeds);
  line.add_list("passed_over", variant.passed_over,
                [](const auto& point) { return tuned_json({.tuned = point}); });
  line.add_list("edges", variant.edges, edge_json);
  line.add_list("runs", variant.runs,
                [&](const report::CellResult& run) { return run_json(run, comparison); });
  line.add("finished", result.finished).add("failed", result.failed);
  line.add_raw("final_eval_loss", result.finished > 0
                                      ? spread_json(result.final_loss, result.interval).str()
                                      : "null");
  line.add_raw("difference", result.against ? against_json(*result.against) : "null");
  line.add_raw("to_target", comparison.target ? way_json(result.to_target) : "null");
  const report::OtherLinks& other = comparison.other_links;
  line.add_raw("to_target_on_links_s", other.links.empty() ? "null" : links_json(other, v));
  line.add("needs_simulating", other.variants.empty() ? "" : other.variants[v].obstacle);
  line.add("verdict", result.verdict);
  line.add("claim", v != comparison.rules.baseline && result.no_claim.empty());
  line.add("no_claim", result.no_claim);
  return line.str();
}

std::string target_json(const report::Comparison& comparison) {
  const report::ComparisonRules& rules = comparison.rules;
  JsonLine line;
  line.add("metric", "val_loss").add("value", *comparison.target);
  if (rules.target) {
    line.add_null("relative_to").add_null("factor");
  } else {
    line.add("relative_to", comparison.variants[rules.target_relative_to].name);
    line.add("factor", rules.target_factor);
  }
  line.add("budget_steps", rules.budget_steps).add("budget_s", rules.budget_s);
  return line.str();
}

bool is_cell_folder(const Storage& storage, const std::filesystem::path& folder) {
  const std::string name = folder.filename().string();
  return (name.starts_with("seed-") || name.starts_with("tune-")) &&
         storage.kind(folder) == FileKind::kDirectory &&
         (command_of(storage, folder) == "compare" ||
          storage.kind(config_beside(folder)) == FileKind::kFile);  // a program's
}

}  // namespace

std::string command_of(const Storage& storage, const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "manifest.json";
  if (storage.kind(file) != FileKind::kFile) {
    return "";
  }
  const auto json = read_json(read_text(storage, file));
  const auto command = json.is_object() ? json.find("command") : json.end();
  return json.is_object() && command != json.end() && command->is_string()
             ? command->get<std::string>()
             : "";
}

void remove_cells(Storage& storage, const std::filesystem::path& folder) {
  if (storage.kind(folder) != FileKind::kDirectory) {
    return;
  }
  for (const std::string& name : storage.list(folder)) {
    const std::filesystem::path variant = folder / name;
    if (storage.kind(variant) != FileKind::kDirectory) {
      continue;
    }
    bool removed = false;
    for (const std::string& cell : storage.list(variant)) {
      if (is_cell_folder(storage, variant / cell)) {
        storage.remove_all(variant / cell);
        storage.remove_all(config_beside(variant / cell));
        storage.remove_all(log_beside(variant / cell));
        removed = true;
      }
    }
    if (removed && storage.list(variant).empty()) {
      storage.remove(variant);
    }
  }
}

void check_cells_are_free(const Storage& storage, const std::filesystem::path& folder) {
  for (const std::string& name : storage.list(folder)) {
    if (storage.kind(folder / name) != FileKind::kDirectory) continue;
    for (const std::string& cell : storage.list(folder / name)) {
      if (storage.kind(folder / name / cell) != FileKind::kDirectory) continue;
      check_nobody_writes(folder / name / cell);
    }
  }
}

void write_comparison_manifest(RunDirectory& directory, const Experiment& experiment,
                               const ComparisonPlan& plan, const ComparisonFacts& facts) {
  const BuildInfo build = build_info();
  const MachineInfo machine = machine_info();
  const Config baseline = experiment.config(plan.variants()[plan.baseline()], {});
  JsonLine line;
  line.add("schema", 1).add("run_id", facts.run_id).add("name", baseline.run.name);
  line.add("command", "compare").add("argv", std::span<const std::string>(facts.argv));
  line.add("started", facts.started);
  line.add_or_null("ended", facts.ended);
  line.add("status", facts.status).add("version", build.version).add("git", build.git);
  line.add("compiler", build.compiler).add("flags", build.flags);
  line.add("cpu", machine.cpu).add("cores", machine.cores).add("os", machine.os);
  line.add_raw("data", data_files_json(facts.data)).add("quick", facts.quick);
  std::vector<std::string> names;
  for (const std::size_t v : plan.variants()) {
    names.push_back(experiment.variants()[v].name);
  }
  line.add("variants", std::span<const std::string>(names));
  line.add("baseline", names[plan.baseline()]);
  line.add("cells", facts.cells);
  directory.write_json("manifest.json", indented_json(line.str(), "manifest.json"));
}

std::string comparison_json(const report::Comparison& comparison, const ComparisonFacts& facts,
                            const std::filesystem::path& folder) {
  const report::ComparisonRules& rules = comparison.rules;
  JsonLine line;
  line.add("kind", "comparison").add("name", rules.name).add("status", facts.status);
  line.add("result", !rules.quick).add("quick", rules.quick);
  line.add("baseline", comparison.variants[rules.baseline].name);
  line.add_list("seeds", comparison.variants.front().runs,
                [](const report::CellResult& run) { return fmt::format("{}", run.seed); });
  line.add("confidence", rules.confidence);
  line.add("comparisons", comparison.variants.size() - 1);
  line.add("margin_share", rules.margin).add("margin", comparison.margin);
  line.add("floor", rules.floor);
  line.add_raw("target", comparison.target ? target_json(comparison) : "null");
  line.add("eval_every", comparison.eval_every);
  std::vector<std::string> variants;
  for (std::size_t v = 0; v < comparison.variants.size(); ++v) {
    variants.push_back(variant_json(comparison, v));
  }
  line.add_raw("variants", json_array(variants));
  line.add("notes", std::span<const std::string>(comparison.notes));
  line.add("cells", facts.cells).add("cells_run", facts.run).add("cells_reused", facts.reused);
  line.add("directory", folder.string());
  return line.str();
}

}  // namespace isthmus::app
