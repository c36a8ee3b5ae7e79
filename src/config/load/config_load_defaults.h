// SPDX-License-Identifier: Apache-2.0
// Fills in settings that the sources of a load leave open: presets, a model folder's sizes,
// defaults of the method, the optimizer and the schedule, the sites. Shares of the run become
// steps, and files named by the configuration are read.
#pragma once

#include <string>
#include <utility>

#include "config/load/config_load_draft.h"

namespace isthmus::config {

/// Completes the configuration of `draft` once all sources are read.
void complete(Draft& draft);

/// Why a site that lost the other sites cannot keep its offline training, and the remedy; empty
/// texts if it can. Decides the default of net.max_solo_rounds. `method`: null for an unknown
/// method.
[[nodiscard]] std::pair<std::string, std::string> solo_obstacle(const Config& config,
                                                                const MethodInfo* method);

}  // namespace isthmus::config
