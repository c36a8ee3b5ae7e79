// SPDX-License-Identifier: Apache-2.0
// Sites that take fewer inner steps than the run has.
#include <fmt/format.h>

#include <algorithm>

#include "core/config_loader.h"

namespace isthmus::config {

void Loader::check_paces() {
  const MethodInfo* info = method();
  if (site_places.empty() || info == nullptr) {
    return;
  }
  const auto full_pace = [](const SiteConfig& site) { return site.pace == 1; };
  for (std::size_t i = 0; i < site_places.size(); ++i) {
    if (!full_pace(config.sites[i]) && !info->takes("H")) {
      diagnostics.add("E-CONFLICT", site_places[i],
                      fmt::format("site.pace = {}: method '{}' has no windows of outer.H steps to "
                                  "take fewer in",
                                  config.sites[i].pace, info->name),
                      "remove it, or choose a method with outer.H");
    } else if (info->takes("H") && config.sites[i].pace * static_cast<double>(config.outer.H) < 1) {
      diagnostics.add("E-RANGE", site_places[i],
                      fmt::format("site.pace = {}: not one step in each window of outer.H = {}",
                                  config.sites[i].pace, config.outer.H),
                      "raise pace or H");
    }
  }
  if (info->takes("H") && std::ranges::none_of(config.sites, full_pace)) {
    diagnostics.add("E-CONFLICT", site_places.front(),
                    "no site has pace = 1: the run's steps are those of the fastest site");
  }
}

}  // namespace isthmus::config
