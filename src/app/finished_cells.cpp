// SPDX-License-Identifier: Apache-2.0
#include "app/finished_cells.h"

#include <fmt/format.h>

#include "isthmus/errors.h"

namespace isthmus::app {

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
    cells_.insert_or_assign(cell.configuration, cell);
  }
}

void FinishedCells::fill(ComparisonPlan& plan) const {
  while (const auto cell = plan.next()) {
    report::CellResult result = result_of(*cell);
    result.variant = experiment_.variants()[cell->variant].name;
    result.tuned.clear();
    for (const Setting& value : cell->point) {
      result.tuned.emplace_back(value.key, value.value);
    }
    plan.finish(*cell, std::move(result));
  }
}

DataFacts FinishedCells::data() const {
  const report::CellResult& any = cells_.begin()->second;
  return {any.data_tokens, any.data_entropy};
}

const report::CellResult& FinishedCells::result_of(const Cell& cell) const {
  const auto found = cells_.find(cell.configuration);
  if (found == cells_.end()) {
    std::string values;
    for (const Setting& value : cell.point) {
      values += fmt::format(", {} = {}", value.key, value.value);
    }
    throw ConfigError(fmt::format(
        "--judge {}: no run of {} with seed {}{} as {} has it; run it: isthmus compare {} --resume "
        "--out DIR, DIR having these cells",
        file_.string(), experiment_.variants()[cell.variant].name, cell.seed, values,
        experiment_.file().string(), experiment_.file().string()));
  }
  return found->second;
}

}  // namespace isthmus::app
