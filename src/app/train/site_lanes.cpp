// SPDX-License-Identifier: Apache-2.0
#include "app/train/site_lanes.h"

#include "app/train/config_to_options.h"
#include "config/schema/device_request.h"

namespace isthmus::app {

std::optional<outer::LaneDemand> lanes_of(const Config& config, const ModelLayout& layout) {
  if (!outer_is_on_ranks(config)) return std::nullopt;
  return outer::lane_demand(info_of(config.method), config.outer,
                            parameters_without_values(layout));
}

}  // namespace isthmus::app
