// SPDX-License-Identifier: Apache-2.0
// The cells of a finished comparison, to judge them again without their data: for the tables of
// experiments/ and for readers of a cells.jsonl. A cell counts only for the configuration with
// which it was run.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "app/compare/comparison_checks.h"
#include "app/compare/comparison_plan.h"
#include "core/base/storage.h"
#include "report/data/cells.h"

namespace isthmus::app {

class FinishedCells {
 public:
  /// Reads `file` whole. `experiment` is borrowed. THROWS: SystemError; ConfigError for a torn or
  /// damaged line.
  FinishedCells(const Storage& storage, const std::filesystem::path& file,
                const Experiment& experiment);

  /// Gives every cell of `plan` its result. RETURNS: the cells' notes on their data. THROWS:
  /// ConfigError naming the first cell that is missing, was run with another configuration, occurs
  /// twice, or has other data than the others.
  [[nodiscard]] DataFacts fill(ComparisonPlan& plan) const;

 private:
  [[nodiscard]] const report::CellResult& result_of(const Cell& cell) const;
  [[noreturn]] void refuse_unlike_data(const report::CellResult& one,
                                       const report::CellResult& other) const;

  std::filesystem::path file_;
  const Experiment& experiment_;
  /// By digest of the configuration, then by key: only the key includes texts and initial weights.
  std::map<std::string, std::map<std::string, report::CellResult>> cells_;
};

}  // namespace isthmus::app
