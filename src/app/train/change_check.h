// SPDX-License-Identifier: Apache-2.0
// What of a run may be changed when it goes on (--change), and why the rest may not.
#pragma once

#include <cstdint>

#include "isthmus/config.h"

namespace isthmus::app {

/// A run that has taken `steps` steps under `from` is to go on under `to`. Whether the changed keys
/// are of those that mean the same from now on, and whether the steps taken had the rates that they
/// would have had under `to`. THROWS: ConfigError naming the key, both values, why not, and the way
/// out.
void check_change(const Config& from, const Config& to, std::int64_t steps);

}  // namespace isthmus::app
