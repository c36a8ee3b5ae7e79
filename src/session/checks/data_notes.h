// SPDX-License-Identifier: Apache-2.0
// What is to be said of the data of a run before it trains on them. Pure, but for reading the data.
#pragma once

#include <string>
#include <vector>

#include "data/dataset.h"
#include "isthmus/config.h"

namespace isthmus::app {

/// How often the run reads its training tokens: passes over them.
[[nodiscard]] double epochs(const Config& config, const Dataset& data);
/// One sentence on a run that reads its data more often than teaches it; else empty.
[[nodiscard]] std::string epochs_note(const Config& config, const Dataset& data);

/// One sentence on a source of texts whose first bytes are those of no text; else empty.
[[nodiscard]] std::string binary_note(const Dataset& data);

/// Both, where they are not empty.
[[nodiscard]] std::vector<std::string> notes_on_data(const Config& config, const Dataset& data);

}  // namespace isthmus::app
