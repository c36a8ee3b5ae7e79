// SPDX-License-Identifier: Apache-2.0
// `report RUN...`: one page of all of them; `report DIR`: the page of a comparison.
#include <fmt/format.h>

#include "app/common/commands.h"
#include "app/compare/comparison_page.h"
#include "core/base/log.h"
#include "core/base/suggest.h"
#include "core/base/units.h"
#include "isthmus/errors.h"
#include "record/json_line.h"
#include "record/run_lock.h"
#include "record/wall_clock.h"
#include "report/page/report.h"

namespace isthmus::app {

namespace {

ReportOptions options_of(const ReportArguments& arguments, const Session& session) {
  ReportOptions options;
  options.title = arguments.title;
  options.generated = utc_now();
  options.command = "isthmus " + join(session.argv, " ");
  return options;
}

/// One folder that `compare` has left gets the comparison's page.
bool is_one_comparison(const ReportArguments& arguments) {
  return arguments.runs.size() == 1 && arguments.csv.empty() &&
         report::is_comparison(arguments.runs.front());
}

int report_comparison(const ReportArguments& arguments, Session& session) {
  const std::filesystem::path& folder = arguments.runs.front();
  const ReportResult result =
      write_comparison_page(folder, arguments.out.empty() ? folder / "report.html" : arguments.out,
                            arguments.links, options_of(arguments, session));
  for (const std::string& warning : result.warnings) {
    log_warning("{}", warning);
  }
  session.wrote(result.files.front());
  if (session.json) {
    session.answer(JsonLine()
                       .add("files", std::vector<std::string>{result.files.front().string()})
                       .add("bytes", static_cast<std::uint64_t>(result.bytes))
                       .add("warnings", std::span<const std::string>(result.warnings)));
  } else {
    session.out.write(fmt::format("wrote {} ({}, a comparison)\n", result.files.front().string(),
                                  human_bytes(static_cast<double>(result.bytes))));
  }
  return 0;
}

void check_links(const std::vector<std::string>& links) {
  for (const std::string& link : links) {
    try {
      (void)parse_link(link);
    } catch (const ConfigError& error) {
      throw UsageError(fmt::format("--links: {}", error.what()));
    }
  }
}

/// The runs' times over --links, for the terminal.
std::string retimed_text(const std::vector<std::filesystem::path>& runs,
                         const report::OtherLinks& other) {
  std::string text;
  for (std::size_t i = 0; i < other.variants.size(); ++i) {
    const report::RetimedVariant& variant = other.variants[i];
    text += fmt::format("{}\n", runs[i].string());
    if (!variant.obstacle.empty()) {
      text += fmt::format("  needs simulating again: {}\n", variant.obstacle);
      continue;
    }
    for (std::size_t l = 0; l < other.links.size(); ++l) {
      text += fmt::format("  over {:<18} {:>14} simulated, {:.1f} % computing\n", other.links[l],
                          human_time(variant.end_s[l]), 100 * variant.utilisation[l]);
    }
  }
  return text;
}

}  // namespace

int command_report(const ReportArguments& arguments, Session& session) {
  check_links(arguments.links);
  if (is_one_comparison(arguments)) {
    return report_comparison(arguments, session);
  }
  std::vector<std::filesystem::path> runs;
  for (const std::filesystem::path& path : arguments.runs) {
    const auto found = find_runs(path);
    runs.insert(runs.end(), found.begin(), found.end());
  }
  ReportOptions options = options_of(arguments, session);
  if (!arguments.links.empty()) {
    options.other_links = runs_on_links(runs, arguments.links);
  }
  ReportResult result;
  if (!arguments.csv.empty()) {
    check_outside_run(arguments.csv / "runs.csv");
    result = write_report_csv(runs, arguments.csv);
  }
  if (arguments.csv.empty() || !arguments.out.empty()) {
    const std::filesystem::path page =
        arguments.out.empty() ? arguments.runs.front() / "report.html" : arguments.out;
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
  session.wrote(result.files.front());
  if (session.json) {
    session.answer(JsonLine()
                       .add("files", std::span<const std::string>(files))
                       .add("bytes", static_cast<std::uint64_t>(result.bytes))
                       .add("runs", runs.size())
                       .add_raw("retimed", json_array(retimed_json(runs, options.other_links)))
                       .add("warnings", std::span<const std::string>(result.warnings)));
  } else {
    session.out.write(fmt::format("wrote {} ({}, {} run{})\n", join(files),
                                  human_bytes(static_cast<double>(result.bytes)), runs.size(),
                                  runs.size() == 1 ? "" : "s") +
                      retimed_text(runs, options.other_links));
  }
  return 0;
}

}  // namespace isthmus::app
