// SPDX-License-Identifier: Apache-2.0
// A model's parameters in memory, complete and in the canonical layout: for commands that convert
// one model folder into another. One thread.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "app/common/commands.h"
#include "core/base/storage.h"
#include "inner/hf/hf_companions.h"
#include "inner/hf/hf_config.h"
#include "inner/model/model_layout.h"
#include "inner/model/model_shape.h"
#include "isthmus/inner_loop.h"
#include "record/run_lock.h"

namespace isthmus::app {

/// What a user must be told of a model folder that is read.
struct ModelNotes {
  std::vector<std::string> left_out;  // its tensors, settings and files that are not used
  std::vector<std::string> odd;       // what is kept and cannot be right

  void add(const std::vector<std::string>& more);  // that is left out
  /// Prints a line of what was left out, and one of each odd thing; nothing of nothing.
  void tell(Session& session) const;
};

/// Of `folder` with a model of `shape`; not_read: its tensors that were not read. `bytes`: as for
/// hf_companions. THROWS: SystemError, ConfigError.
[[nodiscard]] ModelNotes model_notes(const Storage& storage, const std::filesystem::path& folder,
                                     const ModelShape& shape, std::vector<std::string> not_read,
                                     bool bytes);

/// Adds the files of the tokenizer in `tokenizer`, a tokenizer.json or its folder, with which the
/// data of a new model were made; none if it has ids that a model of `vocab` ids does not.
/// RETURNS: a text for each file beside tokenizer.json that is damaged and so left out. THROWS:
/// SystemError.
std::vector<std::string> add_tokenizer(HfCompanions& companions, const Storage& storage,
                                       const std::filesystem::path& tokenizer, std::int64_t vocab);

struct HfModel {
  explicit HfModel(const ModelShape& shape);

  [[nodiscard]] std::span<float> tensor(const TensorInfo& info);
  /// All tensors, with storage in `values`.
  [[nodiscard]] std::vector<Parameter> parameters();
  /// Writes a folder that transformers loads, with settings and companion files of `from`. One
  /// process at a time may write into a folder. not_read: tensors of `from` that were not read.
  /// RETURNS: what to tell of `from`.
  /// THROWS: SystemError, also when another process writes there; ConfigError.
  [[nodiscard]] ModelNotes write(Storage& storage, const std::filesystem::path& folder,
                                 const std::filesystem::path& from,
                                 std::vector<std::string> not_read = {});

  ModelLayout layout;
  std::vector<float> values;
};

/// weights += alpha / r B A for every product with an adapter; afterwards the model needs no
/// adapters. adapters: of a shape with `lora`.
void merge_adapters(HfModel& model, HfModel& adapters);

enum class ModelFiles { kWhole, kAdapters };

/// Checks the folder for a model, before anything is read for it: it is no run's, no file, and a
/// whole model and adapters are not mixed there. THROWS: UsageError, SystemError.
void check_model_target(const Storage& storage, const std::filesystem::path& folder,
                        ModelFiles files = ModelFiles::kWhole);

/// The right to write a model, or adapters, to a folder; held by one process at a time.
class ModelFolderLock {
 public:
  /// THROWS: SystemError naming the process that holds it.
  explicit ModelFolderLock(const std::filesystem::path& folder);

 private:
  std::optional<RunLock> lock_;
};

/// Calls `read`, which reads the checkpoints `folders` of runs that may continue meanwhile and
/// remove them; if one has gone, calls it again with the newest ones. `read` must leave nothing
/// behind when it throws. THROWS: as `read`; SystemError if checkpoints go faster than `read` ends.
void read_newest(const std::function<std::vector<std::filesystem::path>()>& folders,
                 const std::function<void()>& read);

}  // namespace isthmus::app
