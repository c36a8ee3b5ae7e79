// SPDX-License-Identifier: Apache-2.0
// manifest.json: the program, the machine and the inputs of a run.
#include <fmt/format.h>

#include <chrono>

#include "core/base/json_input.h"
#include "kernels/isa.h"
#include "record/build_info.h"
#include "record/run_directory.h"

namespace isthmus::app {
namespace {

JsonLine change_json(const ConfigChange& each) {
  return JsonLine().add("after_step", each.after_step).add("change", each.change);
}

std::string surrogate_json(const SurrogateConfig& surrogate) {
  return JsonLine()
      .add("params", surrogate.params)
      .add("step_time_s", in_seconds(surrogate.step_time))
      .str();
}

}  // namespace

std::string data_files_json(std::span<const DataFile> files) {
  return json_list(files, [](const DataFile& file) {
    return JsonLine().add("path", file.path).add("bytes", file.bytes).add("sha256", file.sha256);
  });
}

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
  line.add_or_null("ended", manifest.ended);
  line.add("status", manifest.status).add("version", manifest.version).add("git", manifest.git);
  line.add("compiler", manifest.compiler).add("flags", manifest.flags);
  line.add("cpu", manifest.cpu).add("cores", manifest.cores).add("os", manifest.os);
  line.add("kernels", manifest.kernels).add("device", manifest.device);
  line.add_raw("data", data_files_json(manifest.data)).add("simulated", manifest.simulated);
  line.add("clock", manifest.simulated ? "virtual" : "real");
  line.add_raw("surrogate", manifest.surrogate && manifest.simulated
                                ? surrogate_json(*manifest.surrogate)
                                : "null");
  line.add("method", manifest.method);
  line.add_or_null("final_sync", manifest.final_sync);
  line.add("workers", manifest.workers);
  line.add_raw("model", manifest.model);
  line.add_list("changes", manifest.changes, change_json);
  line.add_or_null("parent", manifest.parent);
  return indented_json(line.str(), "manifest.json");
}

}  // namespace isthmus::app
