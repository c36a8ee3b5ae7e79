// SPDX-License-Identifier: Apache-2.0
// Two resolved configurations compared key by key. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace isthmus::app {

/// "train.steps = 4000 there, 60 here" for each key whose value differs between two texts of
/// `resolved_toml` (origins, which are comments, do not count).
[[nodiscard]] std::vector<std::string> config_differences(std::string_view there,
                                                          std::string_view here);

}  // namespace isthmus::app
