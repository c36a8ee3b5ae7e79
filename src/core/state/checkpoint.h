// SPDX-License-Identifier: Apache-2.0
// Checkpoints of a run, in one folder:
//   step-0001200/  model.safetensors      the outer parameters, whole, by their canonical names
//                  shared.safetensors     state that all workers share
//                  worker-0.safetensors … what each worker owns
//                  further files          as given (config.json makes the folder a Hugging Face
//                  one) state.json             step, workers, run, every scalar, the sha256 of
//                  every file
//   last           link to the newest
// A checkpoint is written under a hidden name, synced file by file, renamed, and only then becomes
// `last`; one is removed by renaming it to a hidden name first. So a death at any instant leaves
// every visible checkpoint whole. One writer at a time; readers verify every byte.
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
  /// Set: it holds the state of this worker alone, of a run whose sites keep their own.
  std::optional<int> only_worker = std::nullopt;
  /// Values, by key, that the run keeps to its end whatever a later program's defaults are, and the
  /// names of its sites ("sites"). Empty in checkpoints of before there were any.
  std::map<std::string, std::string> settings = {};
};

struct ModelTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::span<const float> values;
};

/// What to save; everything is borrowed until `save` returns.
struct CheckpointContents {
  CheckpointInfo info;
  std::vector<ModelTensor> model;
  const StateSnapshot* shared = nullptr;
  std::vector<const StateSnapshot*> workers;  // info.workers of them; null but for info.only_worker
  std::vector<std::pair<std::string, std::string>> files;  // further (name, text)
  /// Of a run whose sites keep their own: all of them lay this one down.
  bool of_all_sites = false;
};

/// The writer. THROWS (all): SystemError of the disk; what was there before is then intact.
class CheckpointStore {
 public:
  /// `storage` is borrowed. `keep` >= 1 newest checkpoints stay; what `last` points to always does,
  /// and the two newest of all sites: where some are missing, the one that they can start from
  /// together may be far behind, and the newest of one may not have reached another.
  CheckpointStore(Storage& storage, std::filesystem::path folder, int keep);
  /// Removes what an interrupted writer left and completes what it had begun to replace. Call once
  /// before the first `save`.
  void recover();
  /// Points `last` at the checkpoint of `step` and removes those after it: the run goes on from
  /// there. Nothing when there is none of that step here.
  void remove_after(std::int64_t step);
  /// Writes one, points `last` at it, removes the oldest beyond `keep`. A checkpoint of the same
  /// step is replaced. RETURNS: its folder.
  std::filesystem::path save(const CheckpointContents& contents);

 private:
  void prune();
  void remove(const std::string& name, std::int64_t step);
  /// What a link means; empty: there is none, or what it meant is gone.
  [[nodiscard]] std::filesystem::path meant_by(const char* link) const;
  void pin_of_all(std::int64_t step);
  [[nodiscard]] std::vector<std::int64_t> steps() const;
  Storage& storage_;
  std::filesystem::path folder_;
  std::size_t keep_;
};

/// One checkpoint, verified.
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
  /// THROWS: RunError when the state cannot be understood.
  [[nodiscard]] std::unique_ptr<StateReader> shared() const;
  /// State of worker k < info().workers. A run that resumes with more workers gives the new ones
  /// worker 0's. THROWS: RunError when another site holds it.
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

/// What state.json of a checkpoint says of it; its other files are not read.
/// THROWS: SystemError naming the file that is missing or corrupt.
[[nodiscard]] CheckpointInfo read_checkpoint_info(const Storage& storage,
                                                  const std::filesystem::path& folder);

/// The checkpoint that `path` means: itself, or the first of `list_checkpoints` in PATH or
/// PATH/ckpt. THROWS: SystemError when there is none.
[[nodiscard]] std::filesystem::path find_checkpoint(const Storage& storage,
                                                    const std::filesystem::path& path);

/// Checkpoints in `folder`, `last` first, then by falling step.
[[nodiscard]] std::vector<std::filesystem::path> list_checkpoints(
    const Storage& storage, const std::filesystem::path& folder);

/// The first of `list_checkpoints` that is intact; `refused` gets a line for each that was not.
/// THROWS: SystemError naming the last defect when none is.
[[nodiscard]] Checkpoint open_newest_checkpoint(const Storage& storage,
                                                const std::filesystem::path& folder,
                                                std::vector<std::string>& refused);

}  // namespace isthmus
