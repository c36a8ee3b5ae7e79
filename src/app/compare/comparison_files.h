// SPDX-License-Identifier: Apache-2.0
// The folder of a comparison, besides its runs' folders <variant>/seed-<k> and <variant>/tune-<i>:
//   manifest.json   the comparison, machine and data       config.toml   the file as it was
//   cells.jsonl     one line a finished cell (report/data/cells.h); input of --resume
//   summary.json    the verdict in numbers and words; the same object as printed by --json
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "app/common/commands.h"
#include "app/compare/cell_inputs.h"
#include "app/compare/comparison_plan.h"
#include "record/run_directory.h"
#include "report/data/comparison.h"

namespace isthmus::app {

/// The command that wrote the folder's manifest.json; empty if there is none.
[[nodiscard]] std::string command_of(const Storage& storage, const std::filesystem::path& folder);

/// Removes the folder's cells, for --force: only folders of runs made by `compare`. Removes a
/// variant's folder if that leaves it empty.
void remove_cells(Storage& storage, const std::filesystem::path& folder);

/// THROWS: SystemError naming a cell's folder into which a run of another process is writing.
void check_cells_are_free(const Storage& storage, const std::filesystem::path& folder);

struct ComparisonFacts {
  std::string run_id;
  std::string started;
  std::string ended;               // empty while it runs
  std::string status = "running";  // running | ok | failed | interrupted | checkpointed
  std::vector<std::string> argv;
  bool quick = false;
  std::size_t cells = 0;   // in all
  std::size_t run = 0;     // now
  std::size_t reused = 0;  // from an earlier start
  std::vector<DataFile> data;
};

void write_comparison_manifest(RunDirectory& directory, const Experiment& experiment,
                               const ComparisonPlan& plan, const ComparisonFacts& facts);

/// summary.json, on one line.
[[nodiscard]] std::string comparison_json(const report::Comparison& comparison,
                                          const ComparisonFacts& facts,
                                          const std::filesystem::path& folder);

}  // namespace isthmus::app
