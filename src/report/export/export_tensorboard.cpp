// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "core/base/json_input.h"
#include "core/base/storage.h"
#include "record/tensorboard_event.h"
#include "record/tensorboard_scalars.h"
#include "report/data/json_fields.h"
#include "report/export/export_files.h"

namespace isthmus {
namespace report {
namespace {

std::string config_of(const ExportedRun& run) {
  const SystemStorage storage;
  const std::filesystem::path file = run.directory / "config.resolved.toml";
  return storage.kind(file) == FileKind::kFile ? read_text(storage, file) : "";
}

bool is_simulated(const ExportedRun& run) {
  RunData data;
  read_manifest(run.directory / "manifest.json", data);
  return data.manifest.simulated.value_or(false);
}

void export_run(const ExportedRun& run, const std::filesystem::path& folder, ExportResult& result) {
  const bool simulated = is_simulated(run);
  TensorBoardScalars scalars(simulated);
  std::string records;
  double started = 0;
  each_metric(run, result, [&](std::string_view line) {
    if (records.empty()) {
      const Json first = read_json(line);
      const double time = first.is_object() && !simulated ? number_at(first, "t") : 0;
      started = std::isfinite(time) ? time : 0;
      records = tensorboard_opening(started, simulated, config_of(run));
    }
    return scalars.take(line, records);
  });
  scalars.finish(records);
  write_export(folder / run.name / event_file_name(static_cast<std::int64_t>(started)), records,
               result);
}

}  // namespace
}  // namespace report

ExportResult export_tensorboard(const std::filesystem::path& from,
                                const std::filesystem::path& folder) {
  ExportResult result;
  for (const report::ExportedRun& run : report::runs_to_export(from)) {
    report::export_run(run, folder, result);
    ++result.runs;
  }
  return result;
}

}  // namespace isthmus
