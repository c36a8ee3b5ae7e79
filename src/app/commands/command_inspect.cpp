// SPDX-License-Identifier: Apache-2.0
// `inspect PATH`: tells the kind of a path and shows its contents.
#include <fmt/format.h>

#include "app/commands/inspect.h"
#include "app/common/commands.h"
#include "core/base/storage.h"
#include "record/json_line.h"

namespace isthmus::app {
namespace {

int inspect_config(const InspectArguments& arguments, Session& session) {
  const Config config = load_config(arguments.path, arguments.overrides, schema_context());
  if (!session.json) {
    session.out.write(resolved_toml(config));
    return 0;
  }
  JsonLine origins;
  for (const auto& [key, origin] : config.origins) {
    origins.add(key, origin.text);
  }
  session.answer(JsonLine()
                     .add("kind", "config")
                     .add("file", config.file.string())
                     .add("digest", config_digest(config))
                     .add("resolved", resolved_toml(config))
                     .add_raw("origins", origins.str()));
  return 0;
}

}  // namespace

int command_inspect(const InspectArguments& arguments, Session& session) {
  const SystemStorage storage;
  const std::filesystem::path& path = arguments.path;
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) {
    throw SystemError(
        fmt::format("{}: no such file or folder; name a configuration, run, checkpoint, "
                    "model folder, tensor file or token file",
                    path.string()));
  }
  const bool config = path.extension() == ".toml";
  if (!config && !arguments.overrides.empty()) {
    throw UsageError("inspect: --set belongs to a configuration (a .toml file)");
  }
  if (status.type() == std::filesystem::file_type::directory) {
    return inspect_folder(storage, path, arguments.tensors, session);
  }
  if (config) {
    return inspect_config(arguments, session);
  }
  if (path.extension() == ".safetensors") {
    return inspect_tensors(storage, path, arguments.tensors, session);
  }
  if (path.extension() == ".log") {
    const std::string text = read_text(storage, path);
    return inspect_spsa_log(path, std::as_bytes(std::span(text)), session);
  }
  return inspect_tokens(storage, path.string(), session);
}

}  // namespace isthmus::app
