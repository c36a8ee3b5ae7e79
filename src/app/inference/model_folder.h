// SPDX-License-Identifier: Apache-2.0
// A trained model with its tokenizer, read from a folder of transformers, a run or a checkpoint:
// the input of `eval` and `generate`. Owned by the command; one thread.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "app/train/hf_model.h"
#include "core/base/storage.h"
#include "text/tokenizer.h"

namespace isthmus::app {

/// The folder with the weights: the newest of a run or checkpoint, or a model folder itself.
/// THROWS: SystemError when there is none.
[[nodiscard]] std::filesystem::path weights_folder(const Storage& storage,
                                                   const std::filesystem::path& from);

struct ModelFolder {
  std::filesystem::path folder;
  HfModel model;
  Tokenizer tokenizer;
  std::string tokenizer_name;  // the file, or "bytes"

  /// "llama, 1,234,567 parameters".
  [[nodiscard]] std::string description() const;
};

/// tokenizer: "" for the folder's, "bytes", or a tokenizer.json or its folder. THROWS: SystemError
/// of a file; ConfigError for an unsupported model, and for a tokenizer that does not fit the
/// model.
[[nodiscard]] ModelFolder open_model_folder(const Storage& storage,
                                            const std::filesystem::path& from,
                                            const std::string& tokenizer);

/// Threads for `wanted`; 0: one a usable core.
[[nodiscard]] int inference_threads(int wanted);

/// THROWS: ConfigError for a device other than the CPU, naming `command`.
void check_on_cpu(const std::string& device, std::string_view command);

/// `model`'s parameters in the form that a pass reads; borrowed.
class FolderParameters final : public ParameterSource {
 public:
  explicit FolderParameters(HfModel& model) : model_(model) {}
  [[nodiscard]] std::span<const float> values(std::size_t parameter) const override {
    return model_.tensor(model_.layout.tensors()[parameter]);
  }

 private:
  HfModel& model_;
};

}  // namespace isthmus::app
