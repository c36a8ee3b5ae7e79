// SPDX-License-Identifier: Apache-2.0
// Checkpoints of a run, in one folder:
//   step-0001200/  model.safetensors      the outer parameters, whole, by their canonical names
//                  shared.safetensors     state that all workers share
//                  worker-0.safetensors … state of one worker
//                  further files          as given (config.json makes it a Hugging Face folder)
//                  state.json             step, workers, run, every scalar, each file's sha256
//   last           link to the newest
// A checkpoint is written under a hidden name, synced file by file, renamed, and only then becomes
// `last`; a checkpoint is removed by renaming it to a hidden name first. So after a crash at any
// moment every visible checkpoint is whole. One writer at a time; readers verify every byte.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/json_input.h"
#include "core/base/storage.h"
#include "core/state/safetensors.h"
#include "core/state/state_snapshot.h"
#include "isthmus/state.h"

namespace isthmus {

struct CheckpointInfo {
  std::int64_t step = 0;
  int workers = 1;
  std::string run_id;
  std::string config_hash;
  /// If set, the checkpoint holds only this worker's state: each site of the run writes its own.
  std::optional<int> only_worker = std::nullopt;
  /// Values, by key, that the run keeps to its end even if a later program has other defaults, and
  /// the names of its sites ("sites"). Empty in checkpoints of older versions.
  std::map<std::string, std::string> settings = {};
};

struct ModelTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::span<const float> values;
};

/// Contents of a checkpoint; everything is borrowed until `save` returns.
struct CheckpointContents {
  CheckpointInfo info;
  std::vector<ModelTensor> model;
  const StateSnapshot* shared = nullptr;
  std::vector<const StateSnapshot*> workers;  // info.workers entries; null except only_worker's, if
                                              // that is set
  std::vector<std::pair<std::string, std::string>> files;  // further (name, text)
  /// True if every site of the run writes a checkpoint of this step.
  bool of_all_sites = false;
};

/// Writes checkpoints. THROWS (all functions): SystemError of the disk; earlier checkpoints are
/// then intact.
class CheckpointStore {
 public:
  /// `storage` is borrowed. Keeps the `keep` >= 1 newest checkpoints, the target of `last`, and the
  /// two newest of all sites: if sites are missing, the step from which the others can resume
  /// together may be far back, and the newest of one site may not have reached another.
  CheckpointStore(Storage& storage, std::filesystem::path folder, int keep);
  /// Removes files of an interrupted writer, and completes an interrupted replacement. Must be
  /// called once before the first `save`.
  void recover();
  /// Sets `last` to the checkpoint of `step`, from which the run resumes, and removes later
  /// checkpoints. Does nothing if there is none of this step.
  void remove_after(std::int64_t step);
  /// Writes a checkpoint, sets `last` to it, removes the oldest beyond `keep`. Replaces a
  /// checkpoint of the same step. RETURNS: its folder.
  std::filesystem::path save(const CheckpointContents& contents);

 private:
  void prune();
  void remove(const std::string& name, std::int64_t step);
  /// The target of a link; empty: no link, or its target is gone.
  [[nodiscard]] std::filesystem::path meant_by(const char* link) const;
  void pin_of_all(std::int64_t step);
  [[nodiscard]] std::vector<std::int64_t> steps() const;
  Storage& storage_;
  std::filesystem::path folder_;
  std::size_t keep_;
};

/// A verified checkpoint.
class Checkpoint {
 public:
  /// `folder`: a checkpoint or a link to one. Reads and hashes every file.
  /// THROWS: SystemError naming the file that is missing, truncated or corrupt.
  [[nodiscard]] static Checkpoint open(const Storage& storage, const std::filesystem::path& folder);

  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;
  ~Checkpoint();

  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }
  [[nodiscard]] const CheckpointInfo& info() const { return info_; }
  [[nodiscard]] const Safetensors& model() const { return *model_; }
  /// SHA-256 of model.safetensors, hence of the outer parameters.
  [[nodiscard]] const std::string& model_digest() const { return model_digest_; }
  /// Fills `values` with a model tensor. THROWS: RunError when it is absent or of another shape.
  void read_model(std::string_view name, std::span<const std::int64_t> shape,
                  std::span<float> values) const;
  /// THROWS: RunError when the state is invalid.
  [[nodiscard]] std::unique_ptr<StateReader> shared() const;
  /// State of worker k < info().workers. When a run resumes with more workers, the new workers get
  /// the state of worker 0. THROWS: RunError when another site holds the state.
  [[nodiscard]] std::unique_ptr<StateReader> worker(int k) const;

 private:
  Checkpoint();
  [[nodiscard]] std::unique_ptr<StateReader> reader(const std::string& part) const;
  const Storage* storage_ = nullptr;
  std::filesystem::path folder_;
  CheckpointInfo info_;
  std::string model_digest_;
  std::unique_ptr<nlohmann::json> states_;
  std::unique_ptr<Safetensors> model_;
};

/// Checks state.json against its own digest and its form. Fuzzed.
/// RETURNS: the document. THROWS: SystemError naming the defect.
[[nodiscard]] nlohmann::json parse_checkpoint_state(std::string_view text,
                                                    const std::string& label);

/// The contents of state.json; reads no other file.
/// THROWS: SystemError naming the file that is missing or corrupt.
[[nodiscard]] CheckpointInfo read_checkpoint_info(const Storage& storage,
                                                  const std::filesystem::path& folder);

/// Resolves `path` to a checkpoint: itself, or the first of `list_checkpoints` in PATH or
/// PATH/ckpt. THROWS: SystemError when there is none.
[[nodiscard]] std::filesystem::path find_checkpoint(const Storage& storage,
                                                    const std::filesystem::path& path);

/// Checkpoints in `folder`: the target of `last` first, then by descending step.
[[nodiscard]] std::vector<std::filesystem::path> list_checkpoints(
    const Storage& storage, const std::filesystem::path& folder);

/// The first intact one of `list_checkpoints`; `refused` gets a line for each defective one before
/// it. THROWS: SystemError naming the last defect when none is intact.
[[nodiscard]] Checkpoint open_newest_checkpoint(const Storage& storage,
                                                const std::filesystem::path& folder,
                                                std::vector<std::string>& refused);

}  // namespace isthmus
