// SPDX-License-Identifier: Apache-2.0
// Models that huggingface_hub has downloaded, found by name in its cache: models--ORG--NAME with
// refs/main, which names a folder under snapshots/. Nothing is downloaded.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "core/base/storage.h"

namespace isthmus {

/// Value of an environment variable; nothing when it is not set.
using EnvironmentLookup = std::function<std::optional<std::string>(const char* variable)>;

/// The cache folder: HF_HUB_CACHE, HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub or
/// ~/.cache/huggingface/hub, the first whose variable is set; empty if none is.
[[nodiscard]] std::filesystem::path hub_cache(const EnvironmentLookup& look);

/// True if `name` can be a model of the hub: NAME or ORG/NAME of letters, digits, "-", "_" and ".".
[[nodiscard]] bool is_hub_name(const std::string& name);

/// The snapshot of `name` to which the cache's "main" points. THROWS: SystemError with the command
/// that downloads the model, when the cache does not have it or has only a part of its config.json.
[[nodiscard]] std::filesystem::path hub_model(const Storage& storage,
                                              const std::filesystem::path& cache,
                                              const std::string& name);

}  // namespace isthmus
