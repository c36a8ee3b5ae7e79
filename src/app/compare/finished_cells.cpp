// SPDX-License-Identifier: Apache-2.0
#include "app/compare/finished_cells.h"

#include <fmt/format.h>

#include "core/base/check.h"
#include "isthmus/errors.h"

namespace isthmus::app {
namespace {

template <typename Wanted>
std::vector<const report::CellResult*> results_of(
    const std::map<std::string, report::CellResult>& by_key, const Wanted& wanted) {
  std::vector<const report::CellResult*> found;
  for (const auto& [key, result] : by_key) {
    if (wanted(result)) found.push_back(&result);
  }
  return found;
}

}  // namespace

FinishedCells::FinishedCells(const Storage& storage, const std::filesystem::path& file,
                             const Experiment& experiment)
    : file_(file), experiment_(experiment) {
  const report::CellFile there = report::read_cells(read_text(storage, file));
  if (there.damaged > 0 || there.cells.empty()) {
    throw ConfigError(fmt::format(
        "--judge {}: {}; it takes the cells.jsonl of a finished comparison", file.string(),
        there.cells.empty() ? "holds no finished runs"
                            : fmt::format("{} torn or damaged lines", there.damaged)));
  }
  for (const report::CellResult& cell : there.cells) {
    cells_[cell.configuration].insert_or_assign(cell.key, cell);
  }
}

DataFacts FinishedCells::fill(ComparisonPlan& plan) const {
  const report::CellResult* first = nullptr;
  while (const auto cell = plan.next()) {
    const report::CellResult& found = result_of(*cell);
    first = first == nullptr ? &found : first;
    if (found.data_tokens != first->data_tokens || found.data_entropy != first->data_entropy) {
      refuse_unlike_data(*first, found);
    }
    report::CellResult result = found;
    result.variant = experiment_.variants()[cell->variant].name;
    result.tuned.clear();
    for (const Setting& value : cell->point) {
      result.tuned.emplace_back(value.key, value.value);
    }
    plan.finish(*cell, std::move(result));
  }
  ISTHMUS_CHECK(first != nullptr, file_.string());
  return {first->data_tokens, first->data_entropy};
}

void FinishedCells::refuse_unlike_data(const report::CellResult& one,
                                       const report::CellResult& other) const {
  throw ConfigError(fmt::format(
      "--judge {}: {} with seed {} was run on {} tokens, {} with seed {} on {}: unlike data, whose "
      "losses cannot be set side by side; keep the lines of one",
      file_.string(), one.variant, one.seed, one.data_tokens, other.variant, other.seed,
      other.data_tokens));
}

const report::CellResult& FinishedCells::result_of(const Cell& cell) const {
  const std::string& variant = experiment_.variants()[cell.variant].name;
  const auto found = cells_.find(cell.configuration);
  if (found != cells_.end()) {
    // Variants that compute the same share a cell; those that differ in their text do not.
    auto runs = results_of(found->second, [&](const auto& run) { return run.variant == variant; });
    if (runs.empty()) runs = results_of(found->second, [](const auto&) { return true; });
    if (runs.size() > 1) {
      throw ConfigError(fmt::format(
          "--judge {}: {} runs of {} with seed {} as {} has it, on unlike data or initial weights; "
          "keep the lines of one",
          file_.string(), runs.size(), variant, cell.seed, experiment_.file().string()));
    }
    return *runs.front();
  }
  if (cells_.contains(digest_under_former_default(cell.config))) {
    throw ConfigError(fmt::format(
        "--judge {}: its runs of {} have outer.final_sync = \"drain\", the default of an earlier "
        "version, and {} leaves the key open, which means \"full\"; say final_sync = \"drain\" in "
        "its [outer] and variants to judge them",
        file_.string(), variant, experiment_.file().string()));
  }
  std::string values;
  for (const Setting& value : cell.point) {
    values += fmt::format(", {} = {}", value.key, value.value);
  }
  throw ConfigError(fmt::format(
      "--judge {}: no run of {} with seed {}{} as {} has it; run it: isthmus compare {} --resume "
      "--out DIR, DIR having these cells",
      file_.string(), variant, cell.seed, values, experiment_.file().string(),
      experiment_.file().string()));
}

}  // namespace isthmus::app
