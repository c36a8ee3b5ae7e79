// SPDX-License-Identifier: Apache-2.0
#include "app/commands/bench/link_party.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/storage.h"
#include "core/base/suggest.h"
#include "session/site/site_links.h"
#include "session/site/site_routes.h"

namespace isthmus::app {
namespace {

WorkerId place_of(const Config& config, const std::filesystem::path& file,
                  const std::string& site) {
  std::vector<std::string> names;
  for (const SiteConfig& each : config.sites) names.push_back(each.name);
  if (!config.origins.contains("site[0].name")) {
    throw ConfigError(fmt::format(
        "{} has no [[site]]: add one for each cluster, with name and address", file.string()));
  }
  const auto found = std::ranges::find(names, site);
  if (found == names.end()) {
    throw ConfigError(fmt::format("--site {}: no such site; sites: {}", site, join(names)));
  }
  if (names.size() < 2) {
    throw ConfigError(fmt::format("{} has one site, and so no link", file.string()));
  }
  check_addresses(config);
  return WorkerId(static_cast<int>(found - names.begin()));
}

/// A hub's relay serves the members of its run alone.
void check_ways(const Config& config, const std::string& purpose) {
  const auto hidden = std::ranges::find_if(
      config.sites, [](const SiteConfig& site) { return site.address.empty(); });
  const bool relayed =
      std::ranges::any_of(config.sites, [](const SiteConfig& site) { return !site.relay.empty(); });
  if (hidden != config.sites.end() && !relayed) {
    throw ConfigError(fmt::format(
        "{}: site '{}' has no address, and hub.relay = \"{}\" passes on what runs send alone: give "
        "a site that all can dial a relay = \"HOST:PORT\" for this",
        purpose, hidden->name, config.hub.relay));
  }
}

}  // namespace

RunIdentity link_identity(const std::string& purpose, const std::string& run) {
  RunIdentity identity;
  identity.run = xxh3_128(as_bytes(purpose + " of " + run));
  return identity;
}

LinkParty link_party(const std::filesystem::path& file, const std::vector<std::string>& overrides,
                     const SiteArguments& site, const std::string& purpose) {
  Config config = load_config(file, overrides, schema_context());
  set_addresses(config, site.addresses);
  LinkParty party;
  party.options = link_options(config, site, place_of(config, file, site.name));
  check_ways(config, purpose);
  for (const SiteConfig& each : config.sites) {
    if (party.options.keys && each.key.empty()) {
      throw ConfigError(fmt::format(
          "{}: site '{}' comes by an invitation, so only the hub knows its key: give it a key in "
          "the file for this",
          purpose, each.name));
    }
  }
  party.options.detours = false;  // the direct way is examined
  party.options.identity = link_identity(purpose, config.run.name);
  party.gather = config.net.gather;
  party.sites = config.sites;
  party.hub = config.hub.address;
  for (const SiteConfig& each : config.sites) {
    party.names.push_back(each.name);
  }
  return party;
}

}  // namespace isthmus::app
