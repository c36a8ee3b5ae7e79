// SPDX-License-Identifier: Apache-2.0
// One or more run directories in, one self-contained HTML page (or CSV files) out.
//
// The page needs no network and is readable without JavaScript: its charts are SVG made here, its
// numbers are tables; Chart.js, inlined, only adds hover and zoom. All content of a run directory
// is untrusted: it is escaped, and missing, incomplete or damaged parts become warnings in the page
// instead of failures. A run in progress is reported as far as it has come. Any thread; blocks on
// file input and output; owns nothing after it returns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "report/data/retimed.h"

namespace isthmus {

struct ReportOptions {
  std::string title;  // heading of the page; empty: the runs' names
  std::string
      generated;        // when the page was made, as text (the caller owns the clock); may be empty
  std::string command;  // makes this page again: "isthmus report runs/a runs/b"; may be empty
  report::OtherLinks other_links;  // of the runs, in their order; without links: left out
};

struct ReportResult {
  std::uintmax_t bytes = 0;  // in total
  std::vector<std::filesystem::path> files;
  std::vector<std::string> warnings;  // one line each, run directory first; also in the page
};

/// Limit of a page's size: long series, the timeline and the downloads are cut to fit.
inline constexpr std::size_t kReportMaxBytes = 2'000'000;

/// Run directories under `path`: itself if it holds metrics.jsonl, else every folder with one up to
/// three levels below (`compare` and `demo` nest them), in name order; without `compare`'s trials,
/// tune-<i>. THROWS: SystemError when `path` does not exist or holds no run.
[[nodiscard]] std::vector<std::filesystem::path> find_runs(const std::filesystem::path& path);

/// Writes the page for `runs` (each resolved by `find_runs`; the others are compared with the
/// first) to `out`, through a temporary file and a rename. THROWS: SystemError when there is no run
/// to report or `out` cannot be written.
ReportResult write_report(const std::vector<std::filesystem::path>& runs,
                          const std::filesystem::path& out, const ReportOptions& options = {});

/// Writes runs.csv (one line a run), train.csv, eval.csv, rounds.csv and prediction.csv of all
/// `runs` into `directory`, which is created. Numbers as in the run's own files, undecimated.
/// THROWS: SystemError as above.
ReportResult write_report_csv(const std::vector<std::filesystem::path>& runs,
                              const std::filesystem::path& directory);

}  // namespace isthmus
