// SPDX-License-Identifier: Apache-2.0
// What outer.placement = "ranks" takes of a site's ranks in a run. Pure.
#pragma once

#include <optional>

#include "inner/model/model_layout.h"
#include "isthmus/config.h"
#include "outer/place/lane_memory.h"

namespace isthmus::app {

/// Nothing where the outer state is not on ranks.
[[nodiscard]] std::optional<outer::LaneDemand> lanes_of(const Config& config,
                                                        const ModelLayout& layout);

}  // namespace isthmus::app
