// SPDX-License-Identifier: Apache-2.0
// Writing, replacing and removing checkpoints; reading them is in checkpoint.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/check.h"
#include "core/base/fault_point.h"
#include "core/base/hash.h"
#include "core/state/checkpoint.h"
#include "core/state/checkpoint_names.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

using nlohmann::json;
using Path = std::filesystem::path;

// Hashes and counts the bytes that pass through to the file.
class HashingFile final : public WritableFile {
 public:
  explicit HashingFile(std::unique_ptr<WritableFile> file) : file_(std::move(file)) {}
  void append(std::span<const std::byte> bytes) override {
    file_->append(bytes);
    hash_.update(bytes);
    size_ += bytes.size();
  }
  void sync() override { file_->sync(); }
  /// Ends the file. RETURNS: its row in state.json.
  [[nodiscard]] json finish() {
    file_->sync();
    return {{"bytes", size_}, {"sha256", hash_.hex()}};
  }

 private:
  std::unique_ptr<WritableFile> file_;
  Sha256 hash_;
  std::uint64_t size_ = 0;
};

// Writes the files of a checkpoint into a folder and keeps their digests.
class FolderWriter {
 public:
  FolderWriter(Storage& storage, Path folder) : storage_(storage), folder_(std::move(folder)) {}

  void tensors(const std::string& name, std::vector<TensorToWrite> values) {
    HashingFile file(storage_.create(folder_ / name));
    write_safetensors(file, std::move(values));
    files_[name] = file.finish();
  }
  void text(const std::string& name, const std::string& contents) {
    HashingFile file(storage_.create(folder_ / name));
    file.append(as_bytes(contents));
    files_[name] = file.finish();
  }
  [[nodiscard]] const json& files() const { return files_; }

 private:
  Storage& storage_;
  Path folder_;
  json files_ = json::object();
};

void write_contents(Storage& storage, const Path& folder, const CheckpointContents& contents) {
  FolderWriter writer(storage, folder);
  std::vector<TensorToWrite> model;
  for (const ModelTensor& tensor : contents.model) {
    model.push_back(float_tensor(tensor.name, tensor.shape, tensor.values));
  }
  writer.tensors(kModelFile, std::move(model));
  reach(FaultPoint::kCheckpoints);
  json states = json::object();
  const auto state = [&](const std::string& part, const StateSnapshot& snapshot) {
    writer.tensors(part + ".safetensors", snapshot.tensors());
    states[part] = snapshot.scalars();
  };
  state(kSharedPart, *contents.shared);
  for (std::size_t k = 0; k < contents.workers.size(); ++k) {
    if (contents.workers[k] != nullptr) {
      state(worker_part(static_cast<int>(k)), *contents.workers[k]);
    }
  }
  for (const auto& [name, text] : contents.files) writer.text(name, text);
  json document = {{"schema", kCheckpointSchema},
                   {"step", contents.info.step},
                   {"workers", contents.info.workers},
                   {"run_id", contents.info.run_id},
                   {"config_hash", contents.info.config_hash},
                   {"files", writer.files()},
                   {"states", states}};
  if (contents.info.only_worker) document["worker"] = *contents.info.only_worker;
  if (!contents.info.settings.empty()) document["settings"] = contents.info.settings;
  document[kDigestKey] = sha256_hex(as_bytes(document.dump()));
  writer.text(kStateFile, document.dump(1) + "\n");
  storage.sync_directory(folder);
}

}  // namespace

CheckpointStore::CheckpointStore(Storage& storage, Path folder, int keep)
    : storage_(storage), folder_(std::move(folder)), keep_(static_cast<std::size_t>(keep)) {
  ISTHMUS_CHECK(keep >= 1, keep);
}

void CheckpointStore::recover() {
  if (storage_.kind(folder_ / ".") != FileKind::kDirectory) return;
  for (const std::string& name : storage_.list(folder_)) {
    const auto hidden = parse_hidden_name(name);
    if (!hidden) continue;
    const Path visible = folder_ / step_name(hidden->step);
    if (hidden->suffix == kReplacedSuffix && storage_.kind(visible) == FileKind::kAbsent) {
      storage_.rename(folder_ / name, visible);
    } else {
      storage_.remove_all(folder_ / name);
    }
  }
  for (const char* link : {kLastLink, kOfAllLink, kOfAllBeforeLink}) {
    const Path leftover = temporary_beside(folder_ / link);
    if (storage_.kind(leftover) != FileKind::kAbsent) storage_.remove(leftover);
  }
}

Path CheckpointStore::save(const CheckpointContents& contents) {
  ISTHMUS_CHECK(contents.shared != nullptr);
  ISTHMUS_CHECK(static_cast<int>(contents.workers.size()) == contents.info.workers,
                contents.workers.size(), contents.info.workers);
  for (int k = 0; k < contents.info.workers; ++k) {
    const bool here = contents.workers[static_cast<std::size_t>(k)] != nullptr;
    ISTHMUS_CHECK(here == (contents.info.only_worker.value_or(k) == k), k);
  }
  const std::int64_t step = contents.info.step;
  const Path temporary = folder_ / hidden_name(step, kTemporarySuffix);
  const Path replaced = folder_ / hidden_name(step, kReplacedSuffix);
  Path visible = folder_ / step_name(step);
  if (storage_.kind(folder_) == FileKind::kAbsent) {
    storage_.create_directories(folder_);
    storage_.sync_directory(folder_.parent_path());
  }
  storage_.remove_all(temporary);
  storage_.create_directories(temporary);
  try {
    write_contents(storage_, temporary, contents);
  } catch (const Error&) {
    try {
      storage_.remove_all(temporary);
    } catch (const SystemError&) {
      // The first failure is the one to report; `recover` removes the rest.
    }
    throw;
  }
  // A directory cannot be renamed over another. Between these two renames the old one is hidden:
  // `list_checkpoints` looks there too, and `recover` brings it back.
  const bool replaces = storage_.kind(visible) != FileKind::kAbsent;
  if (replaces) storage_.rename(visible, replaced);
  storage_.rename(temporary, visible);
  storage_.sync_directory(folder_);
  reach(FaultPoint::kCheckpointed);
  replace_link(storage_, step_name(step), folder_ / kLastLink);
  if (contents.of_all_sites) pin_of_all(step);
  if (replaces) storage_.remove_all(replaced);
  prune();
  return visible;
}

void CheckpointStore::remove_after(std::int64_t step) {
  if (storage_.kind(folder_ / step_name(step)) != FileKind::kDirectory) {
    return;
  }
  replace_link(storage_, step_name(step), folder_ / kLastLink);
  for (const std::int64_t each : steps()) {
    if (each > step) remove(step_name(each), each);
  }
  // A later checkpoint of such a step need not be of all.
  if (meant_by(kOfAllLink).empty()) {
    const Path before = meant_by(kOfAllBeforeLink);
    if (!before.empty()) {
      replace_link(storage_, before, folder_ / kOfAllLink);
    } else if (storage_.kind(folder_ / kOfAllLink) == FileKind::kLink) {
      storage_.remove(folder_ / kOfAllLink);
    }
  }
}

Path CheckpointStore::meant_by(const char* link) const {
  if (storage_.kind(folder_ / link) != FileKind::kLink) return {};
  const Path name = storage_.read_link(folder_ / link);
  return storage_.kind(folder_ / name) == FileKind::kDirectory ? name : Path();
}

void CheckpointStore::pin_of_all(std::int64_t step) {
  const Path before = meant_by(kOfAllLink);
  if (!before.empty() && before != step_name(step)) {
    replace_link(storage_, before, folder_ / kOfAllBeforeLink);
  }
  replace_link(storage_, step_name(step), folder_ / kOfAllLink);
}

void CheckpointStore::prune() {
  const Path last = storage_.read_link(folder_ / kLastLink);
  const Path of_all = meant_by(kOfAllLink);
  const Path before = meant_by(kOfAllBeforeLink);
  const std::vector<std::int64_t> steps = this->steps();
  for (std::size_t i = 0; i + keep_ < steps.size(); ++i) {
    const std::string name = step_name(steps[i]);
    if (name != last && name != of_all && name != before) remove(name, steps[i]);
  }
}

void CheckpointStore::remove(const std::string& name, std::int64_t step) {
  const Path removed = folder_ / hidden_name(step, kRemovedSuffix);
  storage_.remove_all(removed);
  storage_.rename(folder_ / name, removed);
  storage_.remove_all(removed);
}

std::vector<std::int64_t> CheckpointStore::steps() const {
  std::vector<std::int64_t> steps;
  for (const std::string& name : storage_.list(folder_)) {
    if (const auto step = parse_step_name(name)) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

}  // namespace isthmus
