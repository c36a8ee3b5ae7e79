// SPDX-License-Identifier: Apache-2.0
// The use of a site's ranks by outer.placement = "ranks" in a run. Pure.
#pragma once

#include <optional>

#include "inner/model/model_layout.h"
#include "isthmus/config.h"
#include "outer/place/lane_memory.h"

namespace isthmus::app {

/// Nothing if the outer state is not on ranks.
[[nodiscard]] std::optional<outer::LaneDemand> lanes_of(const Config& config,
                                                        const ModelLayout& layout);

}  // namespace isthmus::app
