// SPDX-License-Identifier: Apache-2.0
// `export RUN --to tb|csv|chrome|mlperf`: a run's or a comparison's records for other tools.
#include <fmt/format.h>

#include "app/common/commands.h"
#include "core/base/log.h"
#include "core/base/units.h"
#include "record/json_line.h"
#include "record/run_lock.h"
#include "report/export/export_runs.h"

namespace isthmus::app {
namespace {

namespace fs = std::filesystem;

/// A folder that exports may fill: not there yet, or empty.
void require_fresh_folder(const fs::path& folder) {
  std::error_code error;
  const fs::file_status status = fs::status(folder, error);
  if (fs::exists(status) && !fs::is_directory(status)) {
    throw UsageError(fmt::format("'{}' is a file; name a folder to write", folder.string()));
  }
  if (fs::is_directory(status) && !fs::is_empty(folder, error)) {
    throw UsageError(
        fmt::format("folder '{}' is not empty; name another, or empty it", folder.string()));
  }
}

/// The file to write for a single run: `to`, or NAME in it when it is a folder.
fs::path fresh_file(fs::path to, const char* name) {
  std::error_code error;
  if (fs::is_directory(to, error) || to.filename().empty()) {
    to /= name;
  }
  if (fs::exists(to, error)) {
    throw UsageError(fmt::format("'{}' is there already; name another file", to.string()));
  }
  return to;
}

/// Removes a file that could not be written whole, for example for lack of room.
template <typename Export>
ExportResult whole_or_absent(const fs::path& to, const Export& write) {
  std::error_code error;
  const bool there = fs::exists(to, error);
  try {
    return write();
  } catch (...) {
    for (const fs::directory_entry& each : fs::directory_iterator(to, error)) {
      fs::remove_all(each.path(), error);
    }
    if (!there) fs::remove(to, error);
    throw;
  }
}

ExportResult export_records(const ExportArguments& arguments) {
  check_outside_runs(arguments.to);
  if (arguments.format == "tb" || arguments.format == "csv") {
    require_fresh_folder(arguments.to);
    return whole_or_absent(arguments.to, [&] {
      return arguments.format == "tb" ? export_tensorboard(arguments.from, arguments.to)
                                      : export_csv(arguments.from, arguments.to);
    });
  }
  const bool chrome = arguments.format == "chrome";
  fs::path to = arguments.to;
  if (holds_several_runs(arguments.from)) {
    require_fresh_folder(to);
  } else {
    to = fresh_file(to, chrome ? "trace.json" : "mlperf.log");
  }
  return chrome ? export_chrome_trace(arguments.from, to) : export_mlperf(arguments.from, to);
}

}  // namespace

int command_export_run(const ExportArguments& arguments, Session& session) {
  const ExportResult result = export_records(arguments);
  for (const std::string& warning : result.warnings) {
    log_warning("{}", warning);
  }
  session.wrote(arguments.to);
  if (session.json) {
    std::vector<std::string> files;
    for (const fs::path& file : result.files) {
      files.push_back(file.string());
    }
    session.answer(JsonLine()
                       .add("files", std::span<const std::string>(files))
                       .add("bytes", static_cast<std::uint64_t>(result.bytes))
                       .add("runs", result.runs)
                       .add("warnings", std::span<const std::string>(result.warnings)));
  } else {
    session.out.write(fmt::format(
        "wrote {} ({}, {} run{})\n",
        result.files.size() == 1 ? result.files.front().string() : arguments.to.string(),
        human_bytes(static_cast<double>(result.bytes)), result.runs, result.runs == 1 ? "" : "s"));
  }
  return 0;
}

}  // namespace isthmus::app
