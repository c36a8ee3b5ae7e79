// SPDX-License-Identifier: Apache-2.0
// manifest.json: the program, the machine and the inputs of a run.
#include <fmt/format.h>

#include <chrono>

#include "core/base/json_input.h"
#include "isthmus/errors.h"
#include "kernels/isa.h"
#include "record/build_info.h"
#include "record/run_directory.h"

namespace isthmus::app {
namespace {

std::string changes_json(const std::vector<ConfigChange>& changes) {
  std::string text;
  for (const ConfigChange& each : changes) {
    text += text.empty() ? "" : ",";
    text += JsonLine().add("after_step", each.after_step).add("change", each.change).str();
  }
  return "[" + text + "]";
}

std::string data_json(const std::vector<ManifestData>& data) {
  std::vector<std::string> parts;
  for (const ManifestData& each : data) {
    parts.push_back(JsonLine()
                        .add("path", each.path)
                        .add("bytes", each.bytes)
                        .add("sha256", each.sha256)
                        .str());
  }
  return json_array(parts);
}

std::string surrogate_json(const SurrogateConfig& surrogate) {
  return JsonLine()
      .add("params", surrogate.params)
      .add("step_time_s", in_seconds(surrogate.step_time))
      .str();
}

void add_text_or_null(JsonLine& line, std::string_view key, const std::string& text) {
  if (text.empty()) {
    line.add_null(key);
  } else {
    line.add(key, text);
  }
}

}  // namespace

Manifest make_manifest(const Config& config, std::string command, std::vector<std::string> argv) {
  Manifest manifest;
  manifest.run_id = random_id();
  manifest.name = config.run.name;
  manifest.command = std::move(command);
  manifest.argv = std::move(argv);
  manifest.config_hash = config_digest(config);
  manifest.started = utc_now();
  const BuildInfo build = build_info();
  manifest.version = build.version;
  manifest.git = build.git;
  manifest.compiler = build.compiler;
  manifest.flags = build.flags;
  const MachineInfo machine = machine_info();
  manifest.cpu = machine.cpu;
  manifest.os = machine.os;
  manifest.cores = machine.cores;
  manifest.kernels = kernels::name_of(kernels::active_isa());
  manifest.surrogate = config.surrogate;
  manifest.method = config.method;
  if (config.origins.contains("outer.final_sync")) {
    manifest.final_sync = final_sync_name(config.outer.final_sync);
  }
  manifest.workers = config.workers();
  return manifest;
}

std::string manifest_json(const Manifest& manifest) {
  JsonLine line;
  line.add("schema", 1).add("run_id", manifest.run_id).add("name", manifest.name);
  line.add("command", manifest.command).add("argv", std::span<const std::string>(manifest.argv));
  line.add("config_hash", manifest.config_hash).add("started", manifest.started);
  add_text_or_null(line, "ended", manifest.ended);
  line.add("status", manifest.status).add("version", manifest.version).add("git", manifest.git);
  line.add("compiler", manifest.compiler).add("flags", manifest.flags);
  line.add("cpu", manifest.cpu).add("cores", manifest.cores).add("os", manifest.os);
  line.add("kernels", manifest.kernels).add("device", manifest.device);
  line.add_raw("data", data_json(manifest.data)).add("simulated", manifest.simulated);
  line.add("clock", manifest.simulated ? "virtual" : "real");
  line.add_raw("surrogate", manifest.surrogate && manifest.simulated
                                ? surrogate_json(*manifest.surrogate)
                                : "null");
  line.add("method", manifest.method);
  add_text_or_null(line, "final_sync", manifest.final_sync);
  line.add("workers", manifest.workers);
  line.add_raw("model", manifest.model);
  line.add_raw("changes", changes_json(manifest.changes));
  add_text_or_null(line, "parent", manifest.parent);
  return indented_json(line.str(), "manifest.json");
}

}  // namespace isthmus::app
