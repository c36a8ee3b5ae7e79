// SPDX-License-Identifier: Apache-2.0
// Checks of changes of a resumed run (--change).
#pragma once

#include <cstdint>

#include "isthmus/config.h"

namespace isthmus::app {

/// Checks a run that has taken `steps` steps under `from` and is to continue under `to`: keys may
/// change that later steps read anew, and past steps must have had the learning rates that they
/// would have under `to`. THROWS: ConfigError naming the key, both values, the reason, and the
/// remedy.
void check_change(const Config& from, const Config& to, std::int64_t steps);

}  // namespace isthmus::app
