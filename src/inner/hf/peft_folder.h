// SPDX-License-Identifier: Apache-2.0
// Adapter folders as PEFT writes and loads them: adapter_config.json and
// adapter_model.safetensors. Our adapters have PEFT's names, shapes and storage order. Blocking;
// one thread.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "core/base/storage.h"
#include "inner/hf/hf_weights.h"
#include "inner/model/model_shape.h"
#include "isthmus/config.h"
#include "isthmus/inner_loop.h"

namespace isthmus {

inline constexpr const char* kAdapterConfig = "adapter_config.json";
inline constexpr const char* kAdapterWeights = "adapter_model.safetensors";

/// adapter_config.json for adapters of this shape and the base model `base`. REQUIRES: a rank.
[[nodiscard]] std::string adapter_config_text(const ModelShape& shape, const std::string& base);

struct PeftAdapter {
  LoraConfig lora;   // rank, alpha, targets
  std::string base;  // base_model_name_or_path; may be empty
};

/// Reads a folder of PEFT, or a checkpoint. THROWS: SystemError for a file that cannot be read or
/// is not an adapter_config.json; ConfigError naming the setting that our adapters do not support
/// (another peft_type, biases, rsLoRA, DoRA, ranks by layer, modules that are trained whole, ...).
[[nodiscard]] PeftAdapter read_adapter_config(const Storage& storage,
                                              const std::filesystem::path& folder);

/// THROWS: as load_adapter, with the layers that target_modules names where weights are missing.
void check_adapter(const Storage& storage, const std::filesystem::path& folder,
                   std::span<const Parameter> parameters);

/// Fills the parameters' values from `folder`. THROWS: SystemError when the file is unusable, a
/// value is not finite, or one error that lists every missing, unknown and misshaped tensor; the
/// values are then unchanged.
void load_adapter(const Storage& storage, const std::filesystem::path& folder,
                  std::span<const Parameter> parameters);

/// For folders that a whole model is to be written into: transformers sets an adapter that lies
/// beside a model before it, without a word. THROWS: SystemError where one does.
void check_no_adapter(const Storage& storage, const std::filesystem::path& folder);

/// For folders that an adapter is to be written into. THROWS: SystemError where a folder holds
/// other files than an adapter's.
void check_adapters_alone(const Storage& storage, const std::filesystem::path& folder);

/// The digest of the base's values that an adapter was trained beside, as write_adapter_folder left
/// it in the weights' metadata; empty for adapters of other programs. THROWS: SystemError.
[[nodiscard]] std::string adapter_base_digest(const Storage& storage,
                                              const std::filesystem::path& folder);

/// Writes a folder that PEFT loads, with the digest of the base's values in the metadata of the
/// weights. The folder must not exist, or be empty or an adapter's; the weights are written last.
/// THROWS: SystemError.
void write_adapter_folder(Storage& storage, const std::filesystem::path& folder,
                          const ModelShape& shape, const std::string& base,
                          const std::string& base_digest, std::span<const HfTensor> tensors);

}  // namespace isthmus
