// SPDX-License-Identifier: Apache-2.0
// `report RUN...`: one page of all of them.
#include <fmt/format.h>

#include "app/commands.h"
#include "app/json_line.h"
#include "app/wall_clock.h"
#include "core/log.h"
#include "core/suggest.h"
#include "core/units.h"
#include "report/report.h"

namespace isthmus::app {

int command_report(const ReportArguments& arguments, Session& session) {
  std::vector<std::filesystem::path> runs;
  for (const std::filesystem::path& path : arguments.runs) {
    const auto found = find_runs(path);
    runs.insert(runs.end(), found.begin(), found.end());
  }
  ReportResult result;
  if (!arguments.csv.empty()) {
    result = write_report_csv(runs, arguments.csv);
  }
  if (arguments.csv.empty() || !arguments.out.empty()) {
    const std::filesystem::path page =
        arguments.out.empty() ? arguments.runs.front() / "report.html" : arguments.out;
    ReportOptions options;
    options.title = arguments.title;
    options.generated = utc_now();
    options.command = "isthmus " + join(session.argv, " ");
    const ReportResult written = write_report(runs, page, options);
    result.bytes += written.bytes;
    result.files.insert(result.files.end(), written.files.begin(), written.files.end());
    result.warnings.insert(result.warnings.end(), written.warnings.begin(), written.warnings.end());
  }
  for (const std::string& warning : result.warnings) {
    log_warning("{}", warning);
  }
  std::vector<std::string> files;
  for (const std::filesystem::path& file : result.files) {
    files.push_back(file.string());
  }
  if (session.json) {
    session.out.write(JsonLine()
                          .add("files", std::span<const std::string>(files))
                          .add("bytes", static_cast<std::uint64_t>(result.bytes))
                          .add("runs", runs.size())
                          .add("warnings", std::span<const std::string>(result.warnings))
                          .str() +
                      "\n");
  } else {
    session.out.write(fmt::format("wrote {} ({}, {} run{})\n", join(files),
                                  human_bytes(static_cast<double>(result.bytes)), runs.size(),
                                  runs.size() == 1 ? "" : "s"));
  }
  return 0;
}

}  // namespace isthmus::app
