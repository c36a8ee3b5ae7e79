// SPDX-License-Identifier: Apache-2.0
#include "core/state/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <tuple>

#include "core/base/check.h"
#include "core/base/hash.h"
#include "core/base/json_input.h"
#include "core/state/checkpoint_names.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

using nlohmann::json;
using Path = std::filesystem::path;

constexpr std::string_view kStepPrefix = "step-";
constexpr int kMaxWorkers = 1 << 20;

[[noreturn]] void bad(const std::string& label, const std::string& defect) {
  throw SystemError(label + ": not a usable checkpoint: " + defect);
}

void require(bool holds, const std::string& label, const char* defect) {
  if (!holds) bad(label, defect);
}

// A file of the checkpoint: of the listed size and digest.
void verify_file(const Storage& storage, const Path& path, const json& row) {
  if (storage.kind(path) == FileKind::kAbsent) bad(path.string(), "the file is missing");
  const MappedFile file = storage.map(path);
  const std::uint64_t bytes = row.at("bytes").get<std::uint64_t>();
  if (file.bytes().size() != bytes) {
    bad(path.string(),
        fmt::format("{} of {} bytes ({})", file.bytes().size(), bytes,
                    file.bytes().size() < bytes ? "truncated" : "changed since it was written"));
  }
  if (sha256_hex(file.bytes()) != row.at("sha256").get_ref<const std::string&>()) {
    bad(path.string(), "its bytes are not those that were written (corrupt)");
  }
}

void check_files(const json& files, const std::string& label) {
  require(files.is_object(), label, "\"files\" is not an object");
  for (const auto& item : files.items()) {
    const std::string& name = item.key();
    const bool is_name = !name.empty() && name != "." && name != ".." &&
                         name.find('/') == std::string::npos &&
                         name.find('\0') == std::string::npos;
    require(is_name, label, "\"files\" names a file outside the folder");
    const json& row = item.value();
    require(row.is_object() && row.contains("bytes") && row.at("bytes").is_number_unsigned() &&
                row.contains("sha256") && row.at("sha256").is_string(),
            label, "a row of \"files\" is not {bytes, sha256}");
  }
}

json read_state_file(const Storage& storage, const Path& folder) {
  if (storage.kind(folder / kStateFile) == FileKind::kAbsent) {
    bad(folder.string(), "it holds no state.json");
  }
  return parse_checkpoint_state(read_text(storage, folder / kStateFile),
                                (folder / kStateFile).string());
}

CheckpointInfo info_of(const json& document) {
  CheckpointInfo info;
  info.step = document.at("step").get<std::int64_t>();
  info.workers = document.at("workers").get<int>();
  info.run_id = document.at("run_id").get<std::string>();
  info.config_hash = document.at("config_hash").get<std::string>();
  if (document.contains("worker")) info.only_worker = document.at("worker").get<int>();
  if (document.contains("settings")) document.at("settings").get_to(info.settings);
  return info;
}

Path resolve_link(const Storage& storage, const Path& path) {
  return storage.kind(path) == FileKind::kLink ? path.parent_path() / storage.read_link(path)
                                               : path;
}

}  // namespace

std::string worker_part(int worker) { return fmt::format("worker-{}", worker); }

std::string step_name(std::int64_t step) { return fmt::format("{}{:07}", kStepPrefix, step); }

std::optional<std::int64_t> parse_step_name(std::string_view name) {
  if (name.substr(0, kStepPrefix.size()) != kStepPrefix) return {};
  std::int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto parsed = std::from_chars(name.data() + kStepPrefix.size(), end, step);
  if (parsed.ec != std::errc() || parsed.ptr != end || step < 0) return {};
  if (step_name(step) != name) return {};
  return step;
}

std::string hidden_name(std::int64_t step, std::string_view suffix) {
  return fmt::format(".{}{}", step_name(step), suffix);
}

std::optional<HiddenName> parse_hidden_name(std::string_view name) {
  for (const std::string_view suffix : {kTemporarySuffix, kReplacedSuffix, kRemovedSuffix}) {
    if (name.size() <= suffix.size() + 1 || name.front() != '.' ||
        name.substr(name.size() - suffix.size()) != suffix) {
      continue;
    }
    const auto step = parse_step_name(name.substr(1, name.size() - suffix.size() - 1));
    if (step) return HiddenName{*step, suffix};
  }
  return {};
}

json parse_checkpoint_state(std::string_view text, const std::string& label) {
  json document = parse_json(text, label);
  require(document.is_object(), label, "it is not an object");
  const auto is = [&](const char* key, bool (json::*has_type)() const noexcept) {
    return document.contains(key) && (document.at(key).*has_type)();
  };
  require(is(kDigestKey, &json::is_string), label, "it has no digest");
  const auto digest = document.at(kDigestKey).get<std::string>();
  document.erase(kDigestKey);
  require(sha256_hex(as_bytes(document.dump())) == digest, label,
          "its contents do not have the digest it states (corrupt)");
  require(is("schema", &json::is_number_integer), label, "it has no schema number");
  if (document.at("schema") != kCheckpointSchema) {
    bad(label, fmt::format("schema {}; this build reads {}", document.at("schema").dump(),
                           kCheckpointSchema));
  }
  require(is("step", &json::is_number_unsigned), label, "it has no step");
  require(is("workers", &json::is_number_unsigned) && document.at("workers") >= 1 &&
              document.at("workers") <= kMaxWorkers,
          label, "it has no usable number of workers");
  require(is("run_id", &json::is_string), label, "it has no run_id");
  require(is("config_hash", &json::is_string), label, "it has no config_hash");
  require(!document.contains("worker") || (is("worker", &json::is_number_unsigned) &&
                                           document.at("worker") < document.at("workers")),
          label, "it holds a worker that the run does not have");
  require(is("states", &json::is_object), label, "it has no states");
  if (document.contains("settings")) {
    const json& settings = document.at("settings");
    require(settings.is_object() &&
                std::ranges::all_of(settings, [](const json& each) { return each.is_string(); }),
            label, "\"settings\" is not a table of texts");
  }
  require(document.contains("files"), label, "it lists no files");
  check_files(document.at("files"), label);
  return document;
}

Checkpoint::Checkpoint() = default;
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;
Checkpoint::~Checkpoint() = default;

Checkpoint Checkpoint::open(const Storage& storage, const Path& folder) {
  Checkpoint checkpoint;
  checkpoint.storage_ = &storage;
  checkpoint.folder_ = resolve_link(storage, folder);
  const Path& base = checkpoint.folder_;
  const std::string label = (base / kStateFile).string();
  const json document = read_state_file(storage, base);
  const CheckpointInfo& info = checkpoint.info_ = info_of(document);
  const json& files = document.at("files");
  std::vector<std::string> parts = {kSharedPart};
  for (int k = 0; k < info.workers; ++k) {
    if (info.only_worker.value_or(k) == k) parts.push_back(worker_part(k));
  }
  for (const std::string& part : parts) {
    if (!files.contains(part + ".safetensors") || !document.at("states").contains(part)) {
      bad(label, fmt::format("it lists no state of \"{}\"", part));
    }
  }
  if (!files.contains(kModelFile)) bad(label, fmt::format("it lists no {}", kModelFile));
  for (const auto& item : files.items()) verify_file(storage, base / item.key(), item.value());
  checkpoint.model_digest_ = files.at(kModelFile).at("sha256").get<std::string>();
  checkpoint.states_ = std::make_unique<json>(document.at("states"));
  checkpoint.model_ = std::make_unique<Safetensors>(Safetensors::open(storage, base / kModelFile));
  return checkpoint;
}

CheckpointInfo read_checkpoint_info(const Storage& storage, const Path& folder) {
  return info_of(read_state_file(storage, resolve_link(storage, folder)));
}

void Checkpoint::read_model(std::string_view name, std::span<const std::int64_t> shape,
                            std::span<float> values) const {
  const SafetensorsEntry* entry = model_->find(name);
  if (entry == nullptr) {
    throw RunError(fmt::format("{}: the model has no tensor \"{}\"", model_->label(), name));
  }
  if (!std::equal(shape.begin(), shape.end(), entry->shape.begin(), entry->shape.end())) {
    throw RunError(fmt::format("{}: tensor \"{}\" has shape [{}]; [{}] is needed", model_->label(),
                               name, fmt::join(entry->shape, ", "),
                               fmt::join(shape.begin(), shape.end(), ", ")));
  }
  model_->read_floats(*entry, values);
}

std::unique_ptr<StateReader> Checkpoint::reader(const std::string& part) const {
  return make_state_reader(Safetensors::open(*storage_, folder_ / (part + ".safetensors")),
                           states_->at(part));
}

std::unique_ptr<StateReader> Checkpoint::shared() const { return reader(kSharedPart); }

std::unique_ptr<StateReader> Checkpoint::worker(int k) const {
  ISTHMUS_CHECK(k >= 0 && k < info_.workers, k, info_.workers);
  if (info_.only_worker.value_or(k) != k) {
    throw RunError(
        fmt::format("{} holds the state of worker {} alone, as each site of a run keeps its own; "
                    "worker {} goes "
                    "on from that of its site (train --site NAME --resume)",
                    folder_.string(), *info_.only_worker, k));
  }
  return reader(worker_part(k));
}

std::vector<Path> list_checkpoints(const Storage& storage, const Path& folder) {
  std::vector<std::pair<std::int64_t, Path>> found;
  if (storage.kind(folder / ".") != FileKind::kDirectory) return {};
  for (const std::string& name : storage.list(folder)) {
    if (const auto step = parse_step_name(name)) found.emplace_back(*step, folder / name);
    // Hidden only while its successor of the same step takes its place.
    const auto hidden = parse_hidden_name(name);
    if (hidden && hidden->suffix == kReplacedSuffix) {
      found.emplace_back(hidden->step, folder / name);
    }
  }
  Path last;
  if (storage.kind(folder / kLastLink) == FileKind::kLink) {
    last = folder / storage.read_link(folder / kLastLink);
  }
  std::sort(found.begin(), found.end(), [&](const auto& a, const auto& b) {
    return std::make_tuple(a.second == last, a.first, a.second) >
           std::make_tuple(b.second == last, b.first, b.second);
  });
  std::vector<Path> paths;
  paths.reserve(found.size());
  for (auto& [step, path] : found) paths.push_back(std::move(path));
  return paths;
}

Path find_checkpoint(const Storage& storage, const Path& path) {
  if (storage.kind(path / kStateFile) == FileKind::kFile) return resolve_link(storage, path);
  for (const Path& folder : {path, path / "ckpt"}) {
    const std::vector<Path> there = list_checkpoints(storage, folder);
    if (!there.empty()) return there.front();
  }
  throw SystemError(path.string() + ": holds no checkpoint; name a run, its ckpt folder or a " +
                    "checkpoint in it");
}

Checkpoint open_newest_checkpoint(const Storage& storage, const Path& folder,
                                  std::vector<std::string>& refused) {
  for (const Path& path : list_checkpoints(storage, folder)) {
    try {
      return Checkpoint::open(storage, path);
    } catch (const SystemError& error) {
      refused.emplace_back(error.what());
    }
  }
  throw SystemError(
      folder.string() + ": holds no usable checkpoint" +
      (refused.empty() ? std::string("; start the run anew") : "; the oldest: " + refused.back()));
}

}  // namespace isthmus
