// SPDX-License-Identifier: Apache-2.0
// A parsed configuration text, independent of the TOML library: values with their places.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "isthmus/config.h"

namespace isthmus::config {

/// A place in one of the sources of a load: 0 is the file, from 1 on the sources added to
/// Diagnostics, -1 none.
struct Place {
  int source = -1;
  int line = 0, column = 0, width = 1;
};

struct SourceEntry;
struct SourceValue;
using SourceArray = std::vector<SourceValue>;
using SourceTable = std::vector<SourceEntry>;
struct SourceDate {};  // TOML has dates; no key takes one

struct SourceValue {
  Place place;
  std::variant<bool, std::int64_t, double, std::string, SourceDate, SourceArray, SourceTable> data;
};

struct SourceEntry {
  std::string key;
  Place place;
  SourceValue value;
};

/// "an integer", "text", "a table", ...
[[nodiscard]] std::string_view type_name(const SourceValue& value);
/// The value as written, shortened: `100`, `"x"`, `[...]`.
[[nodiscard]] std::string shown(const SourceValue& value);

}  // namespace isthmus::config
