// SPDX-License-Identifier: Apache-2.0
// Notes where each value of a loaded configuration comes from.
#pragma once

#include "config/load/config_load_draft.h"

namespace isthmus::config {

/// Fills `config.origins` of a checked draft: a place in a file, an override, a default.
void note_origins(Draft& draft);

}  // namespace isthmus::config
