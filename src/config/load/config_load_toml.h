// SPDX-License-Identifier: Apache-2.0
// TOML text as tables of values with their places. The TOML library stays behind this header.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "config/schema/config_schema_source.h"

namespace isthmus::config {

/// A syntax error, with the place.
struct SyntaxError {
  Place place;
  std::string text;
};

/// Parses a whole TOML text. `source` marks the places. THROWS: SyntaxError.
[[nodiscard]] SourceTable parse_toml(std::string_view text, int source);

/// Parses the right side of `--set key=value`: a TOML value, or the text itself if it is no TOML.
[[nodiscard]] SourceValue parse_override_value(std::string_view text, int source);

/// Offset of the first control character that TOML forbids (all except tab, line feed and carriage
/// return), or npos. Checked before the parser, for a plainer message.
[[nodiscard]] std::size_t control_character(std::string_view text);

}  // namespace isthmus::config
