// SPDX-License-Identifier: Apache-2.0
// A model's parameters in memory, whole and in the canonical layout, between folders that hold it:
// for commands that turn one such folder into another. One thread.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "app/common/commands.h"
#include "core/base/storage.h"
#include "inner/hf/hf_config.h"
#include "inner/model/model_layout.h"
#include "inner/model/model_shape.h"
#include "isthmus/inner_loop.h"
#include "record/run_lock.h"

namespace isthmus::app {

struct HfModel {
  explicit HfModel(const ModelShape& shape);

  [[nodiscard]] std::span<float> tensor(const TensorInfo& info);
  /// Every tensor, over `values`.
  [[nodiscard]] std::vector<Parameter> parameters();
  /// As a folder that transformers loads, with settings and companions of `from`.
  /// One process at a time writes into one folder. RETURNS: what of `from` is left out. THROWS:
  /// SystemError, also where another process writes there; ConfigError.
  [[nodiscard]] std::vector<std::string> write(Storage& storage,
                                               const std::filesystem::path& folder,
                                               const std::filesystem::path& from);

  ModelLayout layout;
  std::vector<float> values;
};

/// weights += alpha / r B A of every product that has an adapter, which the model is then without.
/// adapters: of a shape with `lora`.
void merge_adapters(HfModel& model, HfModel& adapters);

/// The right to write a model, or adapters, to a folder; one process at a time has it.
class ModelFolderLock {
 public:
  /// THROWS: SystemError naming the process that has it.
  explicit ModelFolderLock(const std::filesystem::path& folder);

 private:
  std::optional<RunLock> lock_;
};

/// A model may be written to `folder`: no run writes there or in a folder above, and it is no
/// checkpoint nor lies among those of a run. THROWS: SystemError.
void check_model_target(const std::filesystem::path& folder);

/// Runs `read`, which reads the checkpoints `folders` of runs that may go on meanwhile and remove
/// them; again with the newest ones where one has gone. `read`: leaves nothing behind when it
/// throws. THROWS: as `read`; SystemError where they go faster than they are read.
void read_newest(const std::function<std::vector<std::filesystem::path>()>& folders,
                 const std::function<void()>& read);

/// One line on what of a folder does not come along; nothing where all does.
void tell_left_out(Session& session, const std::vector<std::string>& left_out);

}  // namespace isthmus::app
