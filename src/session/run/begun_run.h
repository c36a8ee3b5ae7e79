// SPDX-License-Identifier: Apache-2.0
// Settings that a run keeps to its end. Defaults change between versions of the program; a resumed
// run ends with the settings of its begin. Checkpoints hold these settings.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "core/base/storage.h"
#include "isthmus/config.h"

namespace isthmus::app {

/// The settings that checkpoints hold, by key.
[[nodiscard]] std::map<std::string, std::string> lasting_settings(const Config& config);

/// The origin of a value that comes from the run's begin, not from the file; a prefix.
inline constexpr std::string_view kAsBegun = "as the run was begun";

/// `config` with the outer.final_sync of the run to be resumed, if the configuration does not set
/// it. For a checkpoint from before this setting was kept it follows from its configuration's
/// digest. `resume` as in SessionOptions. A checkpoint that cannot be read, or has another
/// configuration, changes nothing here; the later resume reports it.
[[nodiscard]] Config as_begun(const Storage& storage, Config config,
                              const std::filesystem::path& out, const std::string& resume);

/// Gives `config` the final sync of `begun`, if `config` does not set one.
void end_as(const Config& begun, Config& config);

}  // namespace isthmus::app
