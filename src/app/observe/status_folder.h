// SPDX-License-Identifier: Apache-2.0
// What a run's folder tells of it, for runs that nobody serves pages about, and where its pages
// are.
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
/// live.json, which a run that is killed leaves behind; nothing where there is none.
[[nodiscard]] std::optional<LiveFile> live_file(const Storage& storage,
                                                const std::filesystem::path& run);

/// A run's folder for what was given: itself, the newest below runs/ for nothing.
/// THROWS: ConfigError saying what was found instead.
[[nodiscard]] std::filesystem::path find_run(const std::filesystem::path& given);

}  // namespace isthmus::app
