// SPDX-License-Identifier: Apache-2.0
// TOML files as JSON texts, which the C interface hands to its callers.
#pragma once

#include <string>
#include <string_view>

namespace isthmus::c {

/// TOML as JSON. `name` stands for the text in errors. THROWS: ConfigError.
[[nodiscard]] std::string json_of_toml(std::string_view text, std::string_view name);

}  // namespace isthmus::c
