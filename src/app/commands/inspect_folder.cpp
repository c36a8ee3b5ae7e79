// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "app/commands/inspect.h"
#include "app/common/text_table.h"
#include "core/base/json_input.h"
#include "core/base/units.h"
#include "core/state/safetensors.h"
#include "isthmus/errors.h"
#include "record/json_line.h"

namespace isthmus::app {
namespace {

bool has(const Storage& storage, const std::filesystem::path& file) {
  const FileKind kind = storage.kind(file);
  return kind == FileKind::kFile || kind == FileKind::kLink;
}

nlohmann::json object_of(const Storage& storage, const std::filesystem::path& file) {
  nlohmann::json json = parse_json(read_text(storage, file), file.string());
  if (!json.is_object()) {
    throw SystemError(fmt::format("{}: is not a JSON object", file.string()));
  }
  return json;
}

/// A member as text, whatever its type; "-" when absent.
std::string shown(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) {
    return "-";
  }
  return found->is_string() ? found->get<std::string>() : found->dump();
}

int inspect_run(const Storage& storage, const std::filesystem::path& folder, Session& session) {
  const nlohmann::json manifest = object_of(storage, folder / "manifest.json");
  const bool finished = has(storage, folder / "summary.json");
  const nlohmann::json summary =
      finished ? object_of(storage, folder / "summary.json") : nlohmann::json::object();
  std::vector<std::string> checkpoints;
  if (storage.kind(folder / "ckpt") == FileKind::kDirectory) {
    checkpoints = storage.list(folder / "ckpt");
    std::erase_if(checkpoints, [](const std::string& name) { return !name.starts_with("step-"); });
  }
  if (session.json) {
    session.answer(JsonLine()
                       .add("kind", "run")
                       .add("path", folder.string())
                       .add_raw("manifest", manifest.dump())
                       .add_raw("summary", finished ? summary.dump() : "null")
                       .add("checkpoints", std::span<const std::string>(checkpoints)));
    return 0;
  }
  session.out.write(fmt::format("{}   run\n", session.out.paint(Style::kBold, folder.string())));
  TextTable table({"", ""});
  for (const char* key : {"name", "run_id", "command", "status", "method", "workers", "simulated",
                          "started", "ended", "config_hash", "version", "git", "cpu", "cores"}) {
    table.add({fmt::format("  {}", key), shown(manifest, key)});
  }
  for (const char* key : {"steps", "tokens", "final_train_loss", "final_eval_loss", "simulated_s",
                          "wall_s", "bytes_payload", "bytes_wire"}) {
    if (summary.contains(key)) {
      table.add({fmt::format("  {}", key), shown(summary, key)});
    }
  }
  table.add({"  checkpoints", checkpoints.empty() ? "none" : checkpoints.back()});
  session.out.write(table.text(session.out));
  return 0;
}

int inspect_checkpoint(const Storage& storage, const std::filesystem::path& folder,
                       bool all_tensors, Session& session) {
  const nlohmann::json state = object_of(storage, folder / "state.json");
  if (session.json) {
    session.answer(JsonLine()
                       .add("kind", "checkpoint")
                       .add("path", folder.string())
                       .add_raw("state", state.dump()));
    return 0;
  }
  session.out.write(
      fmt::format("{}   checkpoint\n", session.out.paint(Style::kBold, folder.string())));
  for (const auto& [key, value] : state.items()) {
    if (!value.is_structured()) {
      session.out.write(fmt::format("  {:16} {}\n", key, shown(state, key.c_str())));
    }
  }
  return inspect_tensors(storage, folder / "model.safetensors", all_tensors, session);
}

}  // namespace

int inspect_tensors(const Storage& storage, const std::filesystem::path& path, bool all_tensors,
                    Session& session) {
  const SafetensorsModel model = SafetensorsModel::open(storage, path);
  std::int64_t values = 0;
  std::uint64_t bytes = 0;
  TextTable table({"tensor", "type", "shape"});
  std::vector<std::string> parts;
  for (const auto& [name, place] : model.tensors()) {
    values += place.entry->elements();
    bytes += place.entry->end - place.entry->begin;
    std::string shape;
    for (const std::int64_t size : place.entry->shape) {
      shape += fmt::format("{}{}", shape.empty() ? "" : " x ", size);
    }
    const std::string_view dtype = dtype_name(place.entry->dtype);
    table.add({"  " + name, std::string(dtype), shape.empty() ? "scalar" : shape});
    parts.push_back(JsonLine().add("name", name).add("dtype", dtype).add("shape", shape).str());
  }
  if (session.json) {
    session.answer(JsonLine()
                       .add("kind", "safetensors")
                       .add("path", path.string())
                       .add("tensors", parts.size())
                       .add("values", values)
                       .add("bytes", bytes)
                       .add_raw("list", all_tensors ? json_array(parts) : "[]"));
    return 0;
  }
  session.out.write(fmt::format("{}   {} tensors, {} values, {}\n",
                                session.out.paint(Style::kBold, path.string()), parts.size(),
                                with_commas(values), human_bytes(static_cast<double>(bytes))));
  session.out.write(all_tensors ? table.text(session.out) : "  all of them: --tensors\n");
  return 0;
}

int inspect_folder(const Storage& storage, const std::filesystem::path& folder, bool all_tensors,
                   Session& session) {
  if (has(storage, folder / "manifest.json")) {
    return inspect_run(storage, folder, session);
  }
  if (has(storage, folder / "state.json")) {
    return inspect_checkpoint(storage, folder, all_tensors, session);
  }
  if (has(storage, folder / "config.json") && !session.json) {
    const nlohmann::json config = object_of(storage, folder / "config.json");
    session.out.write(fmt::format("{}   model folder, {}\n",
                                  session.out.paint(Style::kBold, folder.string()),
                                  shown(config, "model_type")));
  }
  if (has(storage, folder / "model.safetensors") ||
      has(storage, folder / "model.safetensors.index.json")) {
    return inspect_tensors(storage, folder, all_tensors, session);
  }
  throw SystemError(
      fmt::format("{}: neither a run (manifest.json), a checkpoint (state.json) nor a model folder "
                  "(config.json, model.safetensors)",
                  folder.string()));
}

}  // namespace isthmus::app
