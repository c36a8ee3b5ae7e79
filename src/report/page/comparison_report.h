// SPDX-License-Identifier: Apache-2.0
// A comparison's folder in, one self-contained HTML page out: what `isthmus compare` leaves
// (cells.jsonl, summary.json, manifest.json, the runs' folders), with the promises of report.h. The
// verdicts are worked out anew from the cells; what only the comparison itself knows (rules, edges
// of the tuning, weaknesses) is read from summary.json.
// Any thread; blocks on file input and output.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "report/data/comparison.h"
#include "report/page/report.h"

namespace isthmus::report {

/// Whether `folder` is one of `isthmus compare`, finished or not.
[[nodiscard]] bool is_comparison(const std::filesystem::path& folder);

struct ComparisonFolder {
  std::filesystem::path path;
  Comparison comparison;           // without other links
  std::vector<CellResult> trials;  // of the tuning
  std::vector<std::string> warnings;
};

/// THROWS: SystemError when the folder holds no finished comparison (no summary.json, or one that
/// says so), naming what to do.
[[nodiscard]] ComparisonFolder read_comparison(const std::filesystem::path& folder);

/// Writes the page. `options.other_links` are the comparison's. THROWS: SystemError.
ReportResult write_comparison_report(const ComparisonFolder& folder,
                                     const std::filesystem::path& out,
                                     const ReportOptions& options);

}  // namespace isthmus::report
