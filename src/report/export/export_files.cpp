// SPDX-License-Identifier: Apache-2.0
#include "report/export/export_files.h"

#include <fmt/format.h>

#include "core/base/json_input.h"
#include "core/base/storage.h"
#include "report/data/json_fields.h"
#include "report/data/metric_lines.h"
#include "report/page/report.h"

namespace isthmus {
namespace report {

std::vector<ExportedRun> runs_to_export(const std::filesystem::path& from) {
  std::vector<ExportedRun> runs;
  for (const std::filesystem::path& directory : find_runs(from)) {
    std::filesystem::path name = directory.lexically_relative(from);
    runs.push_back({directory, name == "." ? std::filesystem::path() : std::move(name)});
  }
  return runs;
}

std::filesystem::path file_of(const ExportedRun& run, const std::filesystem::path& to,
                              std::string_view extension) {
  if (run.name.empty()) {
    return to;
  }
  std::filesystem::path file = to / run.name;
  file += extension;
  return file;
}

void write_export(const std::filesystem::path& file, std::string_view text, ExportResult& result) {
  SystemStorage storage;
  if (file.has_parent_path()) {
    storage.create_directories(file.parent_path());
  }
  write_atomically(storage, file, text);
  result.bytes += text.size();
  result.files.push_back(file);
}

void each_metric(const ExportedRun& run, ExportResult& result,
                 const std::function<bool(std::string_view)>& use) {
  const std::filesystem::path file = run.directory / "metrics.jsonl";
  bool trained = false;
  const auto seen = [&](std::string_view line) {
    trained = trained || line.find("\"k\":\"train\"") != std::string_view::npos;
    return use(line);
  };
  if (each_line(file, seen)) {
    result.warnings.push_back(fmt::format(
        "{}: the last line is cut off (the run was killed, or is still writing): left out",
        file.string()));
  }
  if (!trained) {
    result.warnings.push_back(fmt::format("{}: holds no training step yet", file.string()));
  }
}

bool is_metric_line(std::string_view line) {
  const Json object = read_json(line);
  return object.is_object() && !text_at(object, "k").empty();
}

}  // namespace report

bool holds_several_runs(const std::filesystem::path& path) {
  return !report::runs_to_export(path).front().name.empty();
}

}  // namespace isthmus
