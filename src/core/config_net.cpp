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
  if (!config.hub.address.empty() && config.workers() < 2) {
    refuse("E-CONFLICT", "hub.address", "a hub for one site", "leave [hub] out");
  }
  if (config.hub.address.empty() && !config.hub.key.empty()) {
    refuse("E-KEY-MISSING", "hub.key", "[hub] with a key and without an address",
           "add address = \"HOST:PORT\"");
  }
  for (const SiteConfig& site : config.sites) {
    if (!config.hub.address.empty() && site.name == "hub") {
      refuse("E-CONFLICT", "hub.address", "a site named 'hub' beside [hub]",
             "give the site another name");
    }
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
