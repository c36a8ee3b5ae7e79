// SPDX-License-Identifier: Apache-2.0
// Generation settings in the files of a model folder: generation_config.json, and the special
// tokens of config.json if the former has none.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "core/base/storage.h"

namespace isthmus {

struct HfGeneration {
  std::vector<std::int32_t> end_tokens;  // eos_token_id: one, a list, or none
  bool samples = false;                  // do_sample
  std::optional<double> temperature, top_p;
  std::optional<std::int64_t> top_k;
};

/// THROWS: SystemError for a file that is unreadable or not JSON; ConfigError naming file, key and
/// an invalid value.
[[nodiscard]] HfGeneration read_hf_generation(const Storage& storage,
                                              const std::filesystem::path& folder);

}  // namespace isthmus
