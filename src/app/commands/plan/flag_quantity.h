// SPDX-License-Identifier: Apache-2.0
// Quantities with units in the flags of the commands below `plan`.
#pragma once

#include <string>
#include <string_view>

#include "core/base/units.h"

namespace isthmus::app {

/// RETURNS: `text` of the flag as a number, above 0 and at most `most`. THROWS: UsageError naming
/// the flag, its value and the allowed ones.
[[nodiscard]] double flag_quantity(std::string_view flag, const std::string& text,
                                   Dimension dimension, double most);

}  // namespace isthmus::app
