// SPDX-License-Identifier: Apache-2.0
// What the exports share: which runs there are, what each is called, how a file is written.
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

/// Where the file of `run` goes: `to` itself for a single run, else to/NAME.EXTENSION.
[[nodiscard]] std::filesystem::path file_of(const ExportedRun& run, const std::filesystem::path& to,
                                            std::string_view extension);

/// Writes `text` atomically, making the folder, and counts it in `result`.
void write_export(const std::filesystem::path& file, std::string_view text, ExportResult& result);

/// `each_line` over the run's metrics.jsonl; a torn last line becomes a warning.
void each_metric(const ExportedRun& run, ExportResult& result,
                 const std::function<bool(std::string_view)>& use);

/// Whether `line` is a JSON object with a kind, as all of metrics.jsonl are.
[[nodiscard]] bool is_metric_line(std::string_view line);

}  // namespace isthmus::report
