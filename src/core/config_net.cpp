// SPDX-License-Identifier: Apache-2.0
// What [net] asks of the sites.
#include <fmt/format.h>

#include "core/config_loader.h"
#include "core/send_cap.h"
#include "isthmus/errors.h"

namespace isthmus::config {

void Loader::check_net() {
  if (config.net.min_sites && *config.net.min_sites > config.workers()) {
    refuse("E-RANGE", "net.min_sites",
           fmt::format("{}: more than the run's {} site{}", quoted("net.min_sites"),
                       config.workers(), config.workers() == 1 ? "" : "s"));
  }
  for (const std::string& hours : config.net.quiet) {
    try {
      static_cast<void>(parse_quiet_hours(hours));
    } catch (const ConfigError& error) {
      refuse("E-VALUE", "net.quiet", fmt::format("'net.quiet': {}", error.what()),
             "write \"08:00-18:00 10Mbit/s\"");
    }
  }
}

}  // namespace isthmus::config
