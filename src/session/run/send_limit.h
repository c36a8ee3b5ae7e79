// SPDX-License-Identifier: Apache-2.0
// The rate limit of a site's traffic (net.cap, net.quiet), as a function of the time of day.
#pragma once

#include <functional>

#include "config/schema/send_cap.h"
#include "isthmus/config.h"
#include "record/wall_clock.h"

namespace isthmus::app {

/// The present rate limit of a site, for MemberOptions::send_bits_per_s: by its cap and the hour.
[[nodiscard]] inline std::function<double()> send_limit(const Config& config,
                                                        const SiteConfig& site) {
  return [cap = SendCap(config, site)] { return cap.at(local_minute_of_day()); };
}

}  // namespace isthmus::app
