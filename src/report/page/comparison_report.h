// SPDX-License-Identifier: Apache-2.0
// A comparison's folder as one self-contained HTML page: input are the files of `isthmus compare`
// (cells.jsonl, summary.json, manifest.json, the runs' folders), with the promises of report.h. The
// verdicts are computed again from the cells; facts that only the comparison has (rules, edges of
// the tuning, weaknesses) are read from summary.json. Any thread; blocks on file input and output.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "report/data/comparison.h"
#include "report/page/report.h"

namespace isthmus::report {

/// Whether `folder` was written by `isthmus compare`, finished or not.
[[nodiscard]] bool is_comparison(const std::filesystem::path& folder);

struct ComparisonFolder {
  std::filesystem::path path;
  Comparison comparison;           // without other links
  std::vector<CellResult> trials;  // of the tuning
  std::vector<std::string> warnings;
};

/// THROWS: SystemError when the folder holds no finished comparison (no summary.json, or one with
/// that status), naming the remedy.
[[nodiscard]] ComparisonFolder read_comparison(const std::filesystem::path& folder);

/// Writes the page. `options.other_links` belong to the comparison. THROWS: SystemError.
ReportResult write_comparison_report(const ComparisonFolder& folder,
                                     const std::filesystem::path& out,
                                     const ReportOptions& options);

}  // namespace isthmus::report
