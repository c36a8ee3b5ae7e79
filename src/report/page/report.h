// SPDX-License-Identifier: Apache-2.0
// One or more run directories in, one self-contained HTML page (or CSV files) out.
//
// The page needs no network and is readable without JavaScript: its charts are SVG made here, its
// numbers are tables; Chart.js, inlined, only adds hover and zoom. Everything read from a run
// directory is data from outside: it is escaped, and what is missing, cut off or damaged becomes a
// warning in the page instead of a failure. A run still in progress is reported as far as it got.
// Any thread; blocks on file input and output; owns nothing after it returns.
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
      generated;  // when the page was made, as text (the caller owns the clock); may be empty
  std::string
      command;  // how to make this page again, e.g. "isthmus report runs/a runs/b"; may be empty
  report::OtherLinks other_links;  // of the runs, in their order; without links: left out
};

struct ReportResult {
  std::uintmax_t bytes = 0;  // written in all
  std::vector<std::filesystem::path> files;
  std::vector<std::string> warnings;  // one line each, run directory first; also in the page
};

/// Size that a page stays below: long series, the timeline and the downloads are cut to fit.
inline constexpr std::size_t kReportMaxBytes = 2'000'000;

/// Run directories under `path`: itself when it holds metrics.jsonl, else every folder up to three
/// levels below that does (`compare` and `demo` nest them), in name order; `compare`'s trials,
/// tune-<i>, are left out.
/// THROWS: SystemError when `path` does not exist or holds no run.
[[nodiscard]] std::vector<std::filesystem::path> find_runs(const std::filesystem::path& path);

/// Writes the page for `runs` (each resolved by `find_runs`; the first is the one that the others
/// are compared with) to `out`, through a temporary file and a rename.
/// THROWS: SystemError when there is no run to report or `out` cannot be written.
ReportResult write_report(const std::vector<std::filesystem::path>& runs,
                          const std::filesystem::path& out, const ReportOptions& options = {});

/// Writes runs.csv (one line a run), train.csv, eval.csv, rounds.csv and prediction.csv of all
/// `runs` into `directory`, which is created. Numbers as in the run's own files, undecimated.
/// THROWS: SystemError as above.
ReportResult write_report_csv(const std::vector<std::filesystem::path>& runs,
                              const std::filesystem::path& directory);

}  // namespace isthmus
