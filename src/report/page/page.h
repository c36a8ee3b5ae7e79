// SPDX-License-Identifier: Apache-2.0
// The page under construction, and its sections in reading order.
//
// A section appends its HTML to `page.html`, and the data of its interactive charts to
// `page.charts`. Sections escape all text that comes from a run.
#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "report/data/run_data.h"
#include "report/page/figures.h"
#include "report/page/report.h"

namespace isthmus::report {

/// A run with data derived from it.
struct RunView {
  RunData data;
  RunFigures figures;
  RunClockWords clock;
  std::vector<WorkerShare> shares;
  std::vector<std::string> worker_names;
};

/// Lengths of lists in the page; halved until the page is small enough.
struct PageLimits {
  std::size_t points_per_series = 800;
  std::size_t spans_per_run = 900;
  std::size_t rounds_per_run = 300;
  std::size_t rows_per_table = 2048;  // configuration, links, fragments, data files; of each run
  std::size_t workers_per_run = 64;   // in bars and matrices, which have separate bounds
  [[nodiscard]] PageLimits halved() const {
    return {std::max<std::size_t>(points_per_series / 2, 8), spans_per_run / 2, rounds_per_run / 2,
            std::max<std::size_t>(rows_per_table / 2, 4),
            std::max<std::size_t>(workers_per_run / 2, 2)};
  }
  /// Number of a run's fragments in the chart of norms: each series needs some points.
  [[nodiscard]] std::size_t fragments_drawn() const {
    return std::max<std::size_t>(points_per_series / 16, 1);
  }
};

struct Page {
  const std::vector<RunView>& runs;
  const ReportOptions& options;
  PageLimits limits;
  std::string html;
  std::vector<std::string> charts;  // chart_json of each
  std::string data;                 // further data of scripts, as whole elements
  bool decimated = false;           // some series was reduced
  bool fragments_left_out = false;  // of the chart of norms
};

struct PageEntry {
  const char* id;
  const char* name;
};
struct PageHead {
  std::string title;
  std::string stamp;  // a line below the title: subject, time, program
  std::span<const PageEntry> sections;
};
/// The head of the page up to its first section, and everything after the last one.
[[nodiscard]] std::string page_opening(const PageHead& head);
[[nodiscard]] std::string page_closing(const Page& page);
/// Creates the folder if needed; a reader never sees a partial page.
void write_page_file(const std::filesystem::path& file, const std::string& text);

/// A run directory with derived data, named after its folder.
[[nodiscard]] RunView view_of(const std::filesystem::path& directory);
/// The folder's own name; for ".", "runs/a/" and the like, the name of the folder they mean.
[[nodiscard]] std::string folder_name(const std::filesystem::path& directory);

void section_verdict(Page& page);     // sentence, labels, warnings, table
void section_loss(Page& page);        // loss against steps, bytes, time
void section_time(Page& page);        // utilisation and timeline
void section_traffic(Page& page);     // matrix and rounds
void section_prediction(Page& page);  // predicted against measured
void section_membership(Page& page);  // sites that left and joined
void section_config(Page& page);      // differences, all values
void section_provenance(Page& page);  // commands, machine, data

struct Download {
  std::string name;
  std::string type;
  std::string what;
  std::string body;
};
/// Downloads, `first` before those of the runs, in at most `budget` bytes of HTML.
void section_downloads(Page& page, std::size_t budget, const std::vector<Download>& first = {});
/// The machine and command of a run (or of a comparison, as far as its manifest has them).
[[nodiscard]] std::string provenance_of(const RunView& run, const std::string& heading,
                                        std::size_t limit);

/// "simulated time" or "time", with its basis, for axes and captions; plain text.
[[nodiscard]] std::string clock_caption(const RunView& run);
/// True if every run has a simulated clock, which is then the time axis; otherwise the real one is.
[[nodiscard]] bool all_simulated(const std::vector<RunView>& runs);

/// True if both have ended at the same step, so that their sums are comparable.
[[nodiscard]] bool same_length(const RunView& a, const RunView& b);
/// The table of section_verdict.
[[nodiscard]] std::string summary_table(const Page& page);

/// "The first 64 of 70 links." as a hint if only a part is shown, else nothing.
[[nodiscard]] std::string first_of_hint(std::size_t shown, std::size_t all, const char* what);
/// Opens a section with its heading; `id` is also the link target.
[[nodiscard]] std::string section_open(const char* id, const char* heading);
/// A run's coloured line and escaped label.
[[nodiscard]] std::string run_tag(const Page& page, std::size_t run);
/// `[surrogate]` or `[simulated]` as a badge if the run's clock is one, else nothing.
[[nodiscard]] std::string clock_badge(const RunView& run);

}  // namespace isthmus::report
