// SPDX-License-Identifier: Apache-2.0
// Runs in the formats of other tools: TensorBoard event files, CSV, Chrome/Perfetto traces, MLPerf
// log lines (docs/how-to/exports.md). A path with several runs (a comparison) becomes a folder with
// one entry a run, under the run's own path (ddp/seed-1). Runs are read strictly: a damaged line
// ends the export. Any thread; blocks on files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace isthmus {

struct ExportResult {
  std::size_t runs = 0;
  std::uintmax_t bytes = 0;
  std::vector<std::filesystem::path> files;
  std::vector<std::string> warnings;  // one line each: torn last lines, sampling
};

/// Whether `path` contains more than one run. THROWS: SystemError when it contains none.
[[nodiscard]] bool holds_several_runs(const std::filesystem::path& path);

/// An event file a run, in `folder` or in folder/RUN.
/// THROWS, as all below: SystemError when there is no run, a line is damaged or the disk refuses.
ExportResult export_tensorboard(const std::filesystem::path& from,
                                const std::filesystem::path& folder);
/// runs.csv, train.csv, eval.csv, rounds.csv and prediction.csv in `folder`; a column names the
/// run.
ExportResult export_csv(const std::filesystem::path& from, const std::filesystem::path& folder);
/// `to` is the file of one run; for several, the folder of RUN.json. THROWS: SystemError also when
/// no run has recorded spans.
ExportResult export_chrome_trace(const std::filesystem::path& from,
                                 const std::filesystem::path& to);
/// `to` is the file of one run; for several, the folder of RUN.log.
ExportResult export_mlperf(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace isthmus
