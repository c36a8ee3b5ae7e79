// SPDX-License-Identifier: Apache-2.0
// A model's files: one, or shards joined by an index.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/json_input.h"
#include "core/state/safetensors.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

using Path = std::filesystem::path;

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

Path find_model(const Storage& storage, const Path& path) {
  if (storage.kind(path / ".") != FileKind::kDirectory) return path;
  if (storage.kind(path / kSingle) != FileKind::kAbsent) return path / kSingle;
  if (storage.kind(path / kIndex) != FileKind::kAbsent) return path / kIndex;
  throw SystemError(path.string() + ": holds neither " + kSingle + " nor " + kIndex +
                    "; other formats (.bin, .gguf) must be saved as safetensors first");
}

// Tensor name -> file name. An index is data from outside: its files must be in its own folder.
std::map<std::string, std::string> read_weight_map(const Storage& storage, const Path& index) {
  const std::string label = index.string();
  const nlohmann::json document = parse_json(read_text(storage, index), label);
  if (!document.is_object() || !document.contains("weight_map") ||
      !document["weight_map"].is_object()) {
    throw SystemError(label + ": has no object \"weight_map\" (tensor name to file name)");
  }
  std::map<std::string, std::string> files;
  for (const auto& item : document["weight_map"].items()) {
    if (!item.value().is_string()) {
      throw SystemError(label + ": the file of \"" + item.key() + "\" is not a string");
    }
    auto name = item.value().get<std::string>();
    if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos ||
        name.find('\0') != std::string::npos) {
      throw SystemError(
          fmt::format("{}: \"{}\" points to \"{}\", which is no file name in this folder", label,
                      item.key(), name));
    }
    files.emplace(item.key(), std::move(name));
  }
  return files;
}

}  // namespace

namespace {

/// If two shards hold a tensor of one name, the index chooses one; if they differ, the intended one
/// is unknown. THROWS: SystemError.
void check_same_tensor(const SafetensorsModel::Place& a, const SafetensorsModel::Place& b) {
  if (a.entry->dtype == b.entry->dtype && a.entry->shape == b.entry->shape &&
      std::ranges::equal(a.file->bytes(*a.entry), b.file->bytes(*b.entry))) {
    return;
  }
  throw SystemError(a.file->label() + " and " + b.file->label() + ": both hold tensor \"" +
                    a.entry->name +
                    "\", with other values; one shard is of another model: download the folder "
                    "again, or remove the tensor from the shard that the index does not name");
}

}  // namespace

SafetensorsModel SafetensorsModel::open(const Storage& storage, const Path& path) {
  SafetensorsModel model;
  const Path found = find_model(storage, path);
  if (found.extension() != ".json") {
    model.files_.push_back(std::make_unique<Safetensors>(Safetensors::open(storage, found)));
    for (const SafetensorsEntry& entry : model.files_.back()->entries()) {
      model.tensors_.emplace(entry.name, Place{model.files_.back().get(), &entry});
    }
    return model;
  }
  std::map<std::string, const Safetensors*> opened;
  for (const auto& [tensor, name] : read_weight_map(storage, found)) {
    const Safetensors*& file = opened[name];
    if (file == nullptr) {
      model.files_.push_back(
          std::make_unique<Safetensors>(Safetensors::open(storage, found.parent_path() / name)));
      file = model.files_.back().get();
    }
    const SafetensorsEntry* entry = file->find(tensor);
    if (entry == nullptr) {
      throw SystemError(file->label() + ": lacks tensor \"" + tensor + "\", which " +
                        found.filename().string() +
                        " places there; copy the model's files again, all of one version");
    }
    model.tensors_.emplace(tensor, Place{file, entry});
  }
  // Tensors that an index leaves out are in the model all the same: the reader of the model decides
  // whether they fit.
  for (const auto& file : model.files_) {
    for (const SafetensorsEntry& entry : file->entries()) {
      const auto [at, added] = model.tensors_.emplace(entry.name, Place{file.get(), &entry});
      if (added || at->second.file == file.get()) continue;
      check_same_tensor(at->second, {file.get(), &entry});
    }
  }
  return model;
}

}  // namespace isthmus
