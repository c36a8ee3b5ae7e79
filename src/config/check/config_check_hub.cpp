// SPDX-License-Identifier: Apache-2.0
// Rules of [hub].
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "config/check/config_check.h"

namespace isthmus::config {
namespace {

void check_relay(const HubConfig& hub, CheckContext& check) {
  const std::string what = check.quoted("hub.relay");
  if (hub.address.empty()) {
    check.refuse(
        "E-KEY-MISSING", "hub.relay", fmt::format("{} without hub.address", what),
        "add address = \"HOST:PORT\", where the sites reach the hub, or give a site that the "
        "others can dial relay = \"HOST:PORT\"");
  } else if (!hub.site.empty()) {
    check.refuse(
        "E-CONFLICT", "hub.relay",
        fmt::format("{} beside {}, whose process is the hub", what, check.quoted("hub.site")),
        fmt::format("give site '{}' relay = \"HOST:PORT\" in its place", hub.site));
  }
}

void check_site(const HubConfig& hub, CheckContext& check) {
  const std::string what = check.quoted("hub.site");
  if (hub.address.empty()) {
    check.refuse(
        "E-KEY-MISSING", "hub.site", fmt::format("{} without hub.address", what),
        "add address = \"HOST:PORT\", where the sites reach that site's process as the hub");
  } else if (std::ranges::find(check.config.sites, hub.site, &SiteConfig::name) ==
             check.config.sites.end()) {
    std::vector<std::string> names;
    for (const SiteConfig& site : check.config.sites) names.push_back(site.name);
    check.refuse("E-VALUE", "hub.site", fmt::format("{}: no such [[site]]", what),
                 fmt::format("sites: {}", fmt::join(names, ", ")));
  }
}

}  // namespace

void validate_hub(const HubConfig& hub, CheckContext& check) {
  if (!hub.address.empty() && check.config.workers() < 2) {
    check.refuse("E-CONFLICT", "hub.address", "a hub for one site", "leave [hub] out");
  }
  if (hub.address.empty() && !hub.key.empty()) {
    check.refuse("E-KEY-MISSING", "hub.key", "[hub] with a key and without an address",
                 "add address = \"HOST:PORT\"");
  }
  if (!hub.site.empty()) check_site(hub, check);
  if (!hub.relay.empty()) check_relay(hub, check);
  for (const SiteConfig& site : check.config.sites) {
    if (!hub.address.empty() && site.name == "hub") {
      check.refuse("E-CONFLICT", "hub.address", "a site named 'hub' beside [hub]",
                   "give the site another name");
    }
  }
}

}  // namespace isthmus::config
