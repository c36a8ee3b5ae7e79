// SPDX-License-Identifier: Apache-2.0
// Sites that no other site can dial.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "isthmus/config.h"
#include "isthmus/types.h"

namespace isthmus::app {

/// Sites without an address, in order.
[[nodiscard]] inline std::vector<WorkerId> hidden_sites(std::span<const SiteConfig> sites) {
  std::vector<WorkerId> hidden;
  for (std::size_t i = 0; i < sites.size(); ++i) {
    if (sites[i].address.empty()) hidden.push_back(WorkerId(static_cast<int>(i)));
  }
  return hidden;
}

}  // namespace isthmus::app
