// SPDX-License-Identifier: Apache-2.0
// From a comparison's folder to its numbers.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <system_error>

#include "core/base/json_input.h"
#include "isthmus/errors.h"
#include "report/data/json_fields.h"
#include "report/page/comparison_report.h"

namespace isthmus::report {
namespace {

namespace fs = std::filesystem;

std::string whole_file(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) {
    throw SystemError(fmt::format("{}: cannot be read", file.string()));
  }
  return {std::istreambuf_iterator<char>(in), {}};
}

TuningEdge edge_of(const Json& edge) {
  return {.key = text_at(edge, "key"),
          .value = text_at(edge, "value"),
          .largest = text_at(edge, "side") == "largest"};
}

/// The cell of the compared run, whose entry in summary.json is `run`: the cell with its key, of
/// any variant, since variants with the same computation share a cell and names may have changed
/// since. A file that was changed and changed back has left later lines of another configuration.
/// Without a key (of an earlier program) the last line with the chosen rates.
const CellResult* find_run(const std::vector<CellResult>& cells, const ComparedVariant& variant,
                           std::int64_t seed, const Json& run) {
  const std::string key = text_at(run, "key");
  const CellResult* found = nullptr;
  for (const CellResult& cell : cells) {
    const bool named = cell.variant == variant.name && cell.tuned == variant.tuned;
    const bool wanted = cell.stage == CellStage::kSeed && cell.seed == seed &&
                        (key.empty() ? named : cell.key == key);
    // Of lines of one key the variant's own.
    found = wanted && (found == nullptr || named) ? &cell : found;
  }
  return found;
}

/// The run of that seed in a variant of summary.json.
const Json& run_at(const Json& variant, std::int64_t seed) {
  static const Json kNone = Json::object();
  for (const Json& run : list_at(variant, "runs")) {
    if (run.is_object() && integer_at(run, "seed", seed - 1) == seed) {
      return run;
    }
  }
  return kNone;
}

ComparedVariant variant_of(const Json& json, const std::vector<CellResult>& cells,
                           const std::vector<std::int64_t>& seeds, const fs::path& folder) {
  ComparedVariant variant{.name = text_at(json, "name"),
                          .method = text_at(json, "method"),
                          .trials = static_cast<int>(integer_at(json, "trials", 0)),
                          .trial_seeds = static_cast<int>(integer_at(json, "trial_seeds", 1))};
  for (const Json& point : list_at(json, "passed_over")) {
    if (!point.is_object()) continue;
    auto& passed = variant.passed_over.emplace_back();
    for (const auto& [key, value] : point.items()) passed.emplace_back(key, scalar_text(value));
  }
  for (const auto& [key, value] : object_at(json, "tuned").items()) {
    variant.tuned.emplace_back(key, scalar_text(value));
  }
  for (const Json& edge : list_at(json, "edges")) {
    variant.edges.push_back(edge_of(edge));
  }
  // A JSON object forgets the order of its keys; the cells have it.
  for (const CellResult& cell : cells) {
    auto sorted = cell.tuned;
    std::ranges::sort(sorted);
    if (cell.variant == variant.name && sorted == variant.tuned) {
      variant.tuned = cell.tuned;
      break;
    }
  }
  for (const std::int64_t seed : seeds) {
    const Json& told = run_at(json, seed);
    const CellResult* run = find_run(cells, variant, seed, told);
    if (run == nullptr) {
      throw SystemError(fmt::format(
          "{}: cells.jsonl has no run of {} at seed {}: go on with `isthmus compare ... --resume`",
          folder.string(), variant.name, seed));
    }
    variant.runs.push_back(*run);
    variant.runs.back().variant = variant.name;
    variant.runs.back().tuned = variant.tuned;
    if (const auto place = told.find("directory"); place != told.end() && place->is_null()) {
      variant.runs.back().directory.clear();  // a later start has taken the folder over
    }
  }
  return variant;
}

ComparisonRules rules_of(const Json& summary, const std::vector<std::string>& names) {
  const auto place_of = [&](const std::string& name) {
    const auto found = std::ranges::find(names, name);
    return found == names.end() ? std::size_t{0} : static_cast<std::size_t>(found - names.begin());
  };
  ComparisonRules rules{.name = text_at(summary, "name"),
                        .baseline = place_of(text_at(summary, "baseline")),
                        .confidence = number_at(summary, "confidence", 0.95),
                        .margin = number_at(summary, "margin_share", 0.01),
                        .floor = number_at(summary, "floor", 0),
                        .quick = flag_at(summary, "quick")};
  rules.target_relative_to = rules.baseline;
  if (const Json& target = object_at(summary, "target"); !target.empty()) {
    const std::string relative = text_at(target, "relative_to");
    if (relative.empty() || relative == "null") {
      rules.target = number_at(target, "value");
    } else {
      rules.target_relative_to = place_of(relative);
      rules.target_factor = number_at(target, "factor", 1.01);
    }
    rules.budget_steps = integer_at(target, "budget_steps", 0);
    rules.budget_s = number_at(target, "budget_s", 0);
  }
  return rules;
}

}  // namespace

bool is_comparison(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / "cells.jsonl", error);
}

ComparisonFolder read_comparison(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path / "summary.json", error)) {
    throw SystemError(fmt::format(
        "{}: the comparison has not come to its end (there is no summary.json): go on with "
        "`isthmus compare ... --resume`",
        path.string()));
  }
  const Json summary = read_json(whole_file(path / "summary.json"));
  if (!summary.is_object() || text_at(summary, "kind") != "comparison" ||
      list_at(summary, "variants").empty()) {
    throw SystemError(fmt::format("{}: summary.json is not one of `isthmus compare`: run it again",
                                  path.string()));
  }
  const CellFile file = read_cells(whole_file(path / "cells.jsonl"));
  ComparisonFolder folder{.path = path};
  if (file.damaged > 0) {
    folder.warnings.push_back(fmt::format("cells.jsonl: {} damaged lines left out", file.damaged));
  }
  std::vector<std::int64_t> seeds;
  for (const Json& seed : list_at(summary, "seeds")) {
    seeds.push_back(static_cast<std::int64_t>(number_of(seed)));
  }
  if (seeds.empty()) {
    throw SystemError(
        fmt::format("{}: summary.json names no seeds: run the comparison again", path.string()));
  }
  std::vector<std::string> names;
  std::vector<ComparedVariant> variants;
  for (const Json& variant : list_at(summary, "variants")) {
    variants.push_back(variant_of(variant, file.cells, seeds, path));
    names.push_back(variants.back().name);
  }
  folder.comparison = compare_variants(rules_of(summary, names), std::move(variants));
  folder.comparison.notes.clear();  // summary.json has the notes, with those about data and plan
  for (const Json& note : list_at(summary, "notes")) {
    folder.comparison.notes.push_back(scalar_text(note));
  }
  using Settings = std::vector<std::pair<std::string, std::string>>;
  std::map<std::tuple<std::string, Settings, std::int64_t>, CellResult> trials;  // by their seeds
  for (const CellResult& cell : file.cells) {
    if (cell.stage == CellStage::kTune && std::ranges::find(names, cell.variant) != names.end()) {
      trials[{cell.variant, cell.tuned, cell.seed}] = cell;  // a later start's result counts
    }
  }
  for (auto& [key, cell] : trials) {
    folder.trials.push_back(std::move(cell));
  }
  return folder;
}

}  // namespace isthmus::report
