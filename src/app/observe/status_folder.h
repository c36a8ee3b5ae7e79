// SPDX-License-Identifier: Apache-2.0
// The status of a run from its folder, for runs without a page, and the address of its pages.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "core/base/storage.h"
#include "record/run_status.h"

namespace isthmus::app {

/// From manifest.json, metrics.jsonl, summary.json. THROWS: ConfigError when it is no run's folder.
[[nodiscard]] RunStatus folder_status(const Storage& storage, const std::filesystem::path& run);

struct LiveFile {
  std::string url, run_id;
};
/// live.json, which a killed run leaves behind; nothing if there is none.
[[nodiscard]] std::optional<LiveFile> live_file(const Storage& storage,
                                                const std::filesystem::path& run);

/// The run's folder for `given`: itself, or for an empty path the newest below runs/. THROWS:
/// ConfigError naming what was found instead.
[[nodiscard]] std::filesystem::path find_run(const std::filesystem::path& given);

}  // namespace isthmus::app
