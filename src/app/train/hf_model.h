// SPDX-License-Identifier: Apache-2.0
// A model's parameters in memory, whole and in the canonical layout, between folders that hold it:
// for commands that turn one such folder into another. One thread.
#pragma once

#include <filesystem>
#include <span>
#include <vector>

#include "core/base/storage.h"
#include "inner/hf/hf_config.h"
#include "inner/model/model_layout.h"
#include "inner/model/model_shape.h"
#include "isthmus/inner_loop.h"

namespace isthmus::app {

struct HfModel {
  explicit HfModel(const ModelShape& shape);

  [[nodiscard]] std::span<float> tensor(const TensorInfo& info);
  /// Every tensor, over `values`.
  [[nodiscard]] std::vector<Parameter> parameters();
  /// As a folder that transformers loads; tokenizer files are those of `tokenizer_from`.
  /// THROWS: SystemError.
  void write(Storage& storage, const std::filesystem::path& folder, const HfTokens& tokens,
             const std::filesystem::path& tokenizer_from);

  ModelLayout layout;
  std::vector<float> values;
};

}  // namespace isthmus::app
