// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "core/base/json_input.h"
#include "core/base/storage.h"
#include "isthmus/errors.h"
#include "report/data/json_fields.h"
#include "report/data/metric_lines.h"
#include "report/export/export_files.h"
#include "report/export/trace_json.h"

namespace isthmus {
namespace report {
namespace {

std::vector<std::string> site_names(const RunData& run) {
  std::vector<std::string> names;
  for (int i = 0; run.config.contains(fmt::format("site[{}].name", i)); ++i) {
    const Json name = read_json(run.config.at(fmt::format("site[{}].name", i)).value);
    names.push_back(name.is_string() ? name.get<std::string>() : fmt::format("worker {}", i));
  }
  return names;
}

/// A line of events.jsonl; false when it is none.
bool take_event(std::string_view text, TraceInput& input) {
  const Json line = read_json(text);
  if (!line.is_object()) {
    return false;
  }
  const std::string kind = text_at(line, "k");
  if (kind == "cut") {
    input.cut_s = number_at(line, "t0", 0);
    return true;
  }
  if (const std::optional<Span> span = span_of(line)) {
    input.spans.push_back(*span);
    return true;
  }
  return !kind.empty() && !span_kind(kind);  // kinds of later versions pass by unread
}

TraceInput read_input(const ExportedRun& run, ExportResult& result) {
  TraceInput input;
  const SystemStorage storage;
  const std::filesystem::path events = run.directory / "events.jsonl";
  if (storage.kind(events) == FileKind::kFile &&
      each_line(events, [&](std::string_view line) { return take_event(line, input); })) {
    result.warnings.push_back(
        fmt::format("{}: the last line is cut off: left out", events.string()));
  }
  RunData data;
  read_manifest(run.directory / "manifest.json", data);
  read_resolved_config(run.directory / "config.resolved.toml", data);
  input.worker_names = site_names(data);
  input.simulated = data.manifest.simulated.value_or(false);
  return input;
}

}  // namespace
}  // namespace report

ExportResult export_chrome_trace(const std::filesystem::path& from,
                                 const std::filesystem::path& to) {
  ExportResult result;
  std::size_t without = 0;
  for (const report::ExportedRun& run : report::runs_to_export(from)) {
    const report::TraceInput input = report::read_input(run, result);
    if (input.spans.empty()) {
      ++without;
      continue;
    }
    const report::Trace trace = report::trace_json(input);
    if (!trace.note.empty()) {
      result.warnings.push_back(fmt::format("{}: {}", run.directory.string(), trace.note));
    }
    report::write_export(report::file_of(run, to, ".json"), trace.json, result);
    ++result.runs;
  }
  if (result.runs == 0) {
    throw SystemError(fmt::format(
        "{}: no events.jsonl with a span in it, so there is no trace to write; train and simulate "
        "write one, compare for the first seed of each variant",
        from.string()));
  }
  if (without > 0) {
    result.warnings.push_back(fmt::format(
        "{} of {} runs recorded no events and have no trace (compare records those of the "
        "first seed of each variant)",
        without, without + result.runs));
  }
  return result;
}

}  // namespace isthmus
