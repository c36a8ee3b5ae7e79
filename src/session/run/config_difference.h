// SPDX-License-Identifier: Apache-2.0
// Two resolved configurations compared key by key. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace isthmus::app {

struct ConfigDifference {
  std::string key;          // of a repeated section "site[0].name"
  std::string there, here;  // as TOML; empty: absent
};

/// Compares two texts of `resolved_toml`, ignoring the origins, which are comments. RETURNS: the
/// keys whose values differ: those of `here` first.
[[nodiscard]] std::vector<ConfigDifference> differing_keys(std::string_view there,
                                                           std::string_view here);

/// "train.steps = 4000 there, 60 here" for each of these keys.
[[nodiscard]] std::vector<std::string> config_differences(std::string_view there,
                                                          std::string_view here);

}  // namespace isthmus::app
