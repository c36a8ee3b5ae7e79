// SPDX-License-Identifier: Apache-2.0
// Shared by the exports: the list of runs, their names, and the writing of files.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "report/export/export_runs.h"

namespace isthmus::report {

struct ExportedRun {
  std::filesystem::path directory;
  std::filesystem::path name;  // below the exported path: "ddp/seed-1"; empty for a single run
};

/// THROWS: SystemError when there is none.
[[nodiscard]] std::vector<ExportedRun> runs_to_export(const std::filesystem::path& from);

/// The file of `run`: `to` itself for a single run, else to/NAME.EXTENSION.
[[nodiscard]] std::filesystem::path file_of(const ExportedRun& run, const std::filesystem::path& to,
                                            std::string_view extension);

/// Writes `text` atomically, creating the folder, and counts it in `result`.
void write_export(const std::filesystem::path& file, std::string_view text, ExportResult& result);

/// `each_line` over the run's metrics.jsonl; a torn last line becomes a warning.
void each_metric(const ExportedRun& run, ExportResult& result,
                 const std::function<bool(std::string_view)>& use);

/// Whether `line` is a JSON object with a kind, like all lines of metrics.jsonl.
[[nodiscard]] bool is_metric_line(std::string_view line);

}  // namespace isthmus::report
