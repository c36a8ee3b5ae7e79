// SPDX-License-Identifier: Apache-2.0
// Values that a run keeps to its end. Defaults change between versions of the program; a run that
// is resumed ends as it was begun. Checkpoints hold these values.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "core/base/storage.h"
#include "isthmus/config.h"

namespace isthmus::app {

/// What checkpoints keep of the configuration, by key.
[[nodiscard]] std::map<std::string, std::string> lasting_settings(const Config& config);

/// How the origin of a value begins that is the run's and not the file's.
inline constexpr std::string_view kAsBegun = "as the run was begun";

/// `config` with outer.final_sync as the run to be resumed began it, where the configuration does
/// not say it. A checkpoint from before the value was kept has it in its configuration's digest.
/// `resume` as in SessionOptions. What cannot be read, or is of another configuration, changes
/// nothing here; finding it again refuses it by name.
[[nodiscard]] Config as_begun(const Storage& storage, Config config,
                              const std::filesystem::path& out, const std::string& resume);

/// `config` ends as `begun` does, where it does not say how.
void end_as(const Config& begun, Config& config);

}  // namespace isthmus::app
