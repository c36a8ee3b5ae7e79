// SPDX-License-Identifier: Apache-2.0
// The report's CSV, for any number of runs: one is in memory at a time.
#include <array>

#include "report/export/export_files.h"
#include "report/page/csv.h"
#include "report/page/report.h"

namespace isthmus {
namespace report {
namespace {

struct Table {
  const char* name;
  std::string (*write)(const std::vector<RunView>&);
};
constexpr std::array<Table, 5> kTables = {{{"runs.csv", runs_csv},
                                           {"train.csv", train_csv},
                                           {"eval.csv", eval_csv},
                                           {"rounds.csv", rounds_csv},
                                           {"prediction.csv", prediction_csv}}};

std::vector<RunView> views_of(const ExportedRun& run) {
  std::vector<RunView> views(1);
  RunView& view = views.front();
  view.data = read_run(run.directory);
  view.figures = figures_of(view.data);
  view.clock = clock_words(view.data);
  view.data.label = run.name.empty()
                        ? std::filesystem::weakly_canonical(run.directory).filename().string()
                        : run.name.generic_string();
  return views;
}

}  // namespace
}  // namespace report

ExportResult export_csv(const std::filesystem::path& from, const std::filesystem::path& folder) {
  ExportResult result;
  std::array<std::string, report::kTables.size()> texts;
  for (const report::ExportedRun& run : report::runs_to_export(from)) {
    // The reader below passes over lines that it cannot use; here such a line is an error.
    report::each_metric(run, result, report::is_metric_line);
    const std::vector<report::RunView> views = report::views_of(run);
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const std::string table = report::kTables[i].write(views);
      texts[i] += result.runs == 0 ? table : table.substr(table.find("\r\n") + 2);
    }
    ++result.runs;
  }
  for (std::size_t i = 0; i < texts.size(); ++i) {
    report::write_export(folder / report::kTables[i].name, texts[i], result);
  }
  return result;
}

}  // namespace isthmus
