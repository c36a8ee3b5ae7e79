// SPDX-License-Identifier: Apache-2.0
// A model's parameters in memory, complete and in the canonical layout: for commands that convert
// one model folder into another. One thread.
#pragma once

#include <filesystem>
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
  /// All tensors, with storage in `values`.
  [[nodiscard]] std::vector<Parameter> parameters();
  /// Writes a folder that transformers loads, with settings and companion files of `from`. One
  /// process at a time may write into a folder. RETURNS: the parts of `from` that are left out.
  /// THROWS: SystemError, also when another process writes there; ConfigError.
  [[nodiscard]] std::vector<std::string> write(Storage& storage,
                                               const std::filesystem::path& folder,
                                               const std::filesystem::path& from);

  ModelLayout layout;
  std::vector<float> values;
};

/// weights += alpha / r B A for every product with an adapter; afterwards the model needs no
/// adapters. adapters: of a shape with `lora`.
void merge_adapters(HfModel& model, HfModel& adapters);

/// The right to write a model, or adapters, to a folder; held by one process at a time.
class ModelFolderLock {
 public:
  /// THROWS: SystemError naming the process that holds it.
  explicit ModelFolderLock(const std::filesystem::path& folder);

 private:
  std::optional<RunLock> lock_;
};

/// Checks that a model may be written to `folder`: no run writes there or in a folder above, and it
/// is neither a checkpoint nor among a run's checkpoints. THROWS: SystemError.
void check_model_target(const std::filesystem::path& folder);

/// Prints one line about parts that were left out; nothing if there are none.
void tell_left_out(Session& session, const std::vector<std::string>& left_out);

}  // namespace isthmus::app
