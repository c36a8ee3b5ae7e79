// SPDX-License-Identifier: Apache-2.0
// From a file on disk to a parsed TOML table. Configurations, links files and comparisons are all
// read this way.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "config/load/config_load_diagnostics.h"
#include "config/schema/config_schema_source.h"

namespace isthmus::config {

/// The text of a regular file of bounded size. THROWS: SystemError, ConfigError.
[[nodiscard]] std::string read_config_file(const std::filesystem::path& file);

/// Parses `text` after checks that give plainer messages than the parser. RETURNS: nothing when
/// `text` is not TOML; the error is noted.
[[nodiscard]] std::optional<SourceTable> parse_source(std::string_view text,
                                                      Diagnostics& diagnostics);

}  // namespace isthmus::config
