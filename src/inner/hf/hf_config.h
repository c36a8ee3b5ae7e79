// SPDX-License-Identifier: Apache-2.0
// Reads and writes config.json of Hugging Face models: the families of hf_families.cpp. Spellings
// of transformers 4 (torch_dtype, rope_theta, rope_scaling) and 5 (dtype, rope_parameters) are both
// read, and both written. A setting that our models do not support is an error that gives name and
// value; none is ignored.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/storage.h"
#include "inner/model/model_shape.h"
#include "isthmus/config.h"

namespace isthmus {

struct HfConfig {
  ModelConfig model;  // all sizes set; context = positions of the model
  /// JSON object of all other keys: special tokens (one, a list or null), initialisation, dropout,
  /// generation settings. Our files keep them.
  std::string settings;
  /// Keys in neither: for code and data that are not copied.
  std::vector<std::string> left_out;
};

/// Reads FOLDER/config.json. THROWS: SystemError when it is unreadable or not JSON; ConfigError
/// listing every key that is missing, wrong or unsupported, with its value.
[[nodiscard]] HfConfig read_hf_config(const Storage& storage, const std::filesystem::path& folder);
/// The same from text; `label` names it. Fuzzed. THROWS: likewise.
[[nodiscard]] HfConfig parse_hf_config(std::string_view text, const std::string& label);

/// config.json and generation_config.json. settings: HfConfig::settings of the folder from which
/// the model was initialised. Empty for a model of ours: its special tokens are then written as
/// null, because the libraries' defaults (1, 2, 50256) would mean ordinary bytes or rows that do
/// not exist.
[[nodiscard]] std::string hf_config_text(const ModelShape& shape, const std::string& settings);
[[nodiscard]] std::string hf_generation_config_text(const std::string& settings);

}  // namespace isthmus
