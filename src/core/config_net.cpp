// SPDX-License-Identifier: Apache-2.0
// What [net] asks of the sites.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "core/config_loader.h"
#include "core/send_cap.h"
#include "core/ways_file.h"
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
  if (!config.hub.site.empty()) check_hub_site();
  if (!config.hub.relay.empty()) check_hub_relay();
  for (const SiteConfig& site : config.sites) {
    if (!config.hub.address.empty() && site.name == "hub") {
      refuse("E-CONFLICT", "hub.address", "a site named 'hub' beside [hub]",
             "give the site another name");
    }
  }
  check_groups();
  check_shares();
  check_solo();
  check_deadline();
  for (const std::string& hours : config.net.quiet) {
    try {
      static_cast<void>(parse_quiet_hours(hours));
    } catch (const ConfigError& error) {
      refuse("E-VALUE", "net.quiet", fmt::format("'net.quiet': {}", error.what()),
             "write \"08:00-18:00 10Mbit/s\"");
    }
  }
}

void Loader::check_hub_relay() {
  const std::string what = quoted("hub.relay");
  if (config.hub.address.empty()) {
    refuse("E-KEY-MISSING", "hub.relay", fmt::format("{} without hub.address", what),
           "add address = \"HOST:PORT\", where the sites reach the hub, or give a site that the "
           "others can dial relay = \"HOST:PORT\"");
  } else if (!config.hub.site.empty()) {
    refuse("E-CONFLICT", "hub.relay",
           fmt::format("{} beside {}, whose process is the hub", what, quoted("hub.site")),
           fmt::format("give site '{}' relay = \"HOST:PORT\" in its place", config.hub.site));
  }
}

void Loader::check_hub_site() {
  const std::string what = quoted("hub.site");
  if (config.hub.address.empty()) {
    refuse("E-KEY-MISSING", "hub.site", fmt::format("{} without hub.address", what),
           "add address = \"HOST:PORT\", where the sites reach that site's process as the hub");
  } else if (std::ranges::find(config.sites, config.hub.site, &SiteConfig::name) ==
             config.sites.end()) {
    std::vector<std::string> names;
    for (const SiteConfig& site : config.sites) names.push_back(site.name);
    refuse("E-VALUE", "hub.site", fmt::format("{}: no such [[site]]", what),
           fmt::format("sites: {}", fmt::join(names, ", ")));
  }
}

void Loader::check_groups() {
  const MethodInfo* info = method();
  if (config.net.reduction != "groups" || info == nullptr) {
    return;
  }
  const std::string what = quoted("net.reduction");
  if (site_places.empty() || std::ranges::all_of(config.sites, [](const SiteConfig& site) {
        return site.group.empty();
      })) {
    refuse("E-KEY-MISSING", "net.reduction", fmt::format("{}: no [[site]] has a group", what),
           "write group = \"eu\" to the sites that are near one another");
  }
  if (!info->takes("exchange") || config.outer.exchange == ReductionKind::kGather) {
    refuse("E-CONFLICT", "net.reduction",
           fmt::format(
               "{}: groups are for means that one site works out for the others, and {}", what,
               info->takes("exchange") ? "outer.exchange = \"gather\" sends all to all"
                                       : fmt::format("method '{}' sends all to all", info->name)),
           "remove it");
  }
  if (info->name == "1bit-adam" || info->name == "01-adam") {
    refuse("E-CONFLICT", "net.reduction",
           fmt::format("{}: method '{}' keeps what each encoding has lost for the next one, which "
                       "a group's mean does not",
                       what, info->name),
           "remove it, or choose another method");
  }
}

// What the file of net.table says: read while loading, so that what is wrong with it is told with
// everything else.
void Loader::take_ways() {
  std::filesystem::path& table = config.net.table;
  if (!table.empty()) {
    table = std::filesystem::absolute(config.locate(table)).lexically_normal();
  }
  if (config.net.shares != "table") return;
  if (table.empty()) {
    refuse(
        "E-KEY-MISSING", "net.shares", "net.shares = \"table\" without net.table",
        "table = \"ways.toml\", as `isthmus bench collectives CONFIG --out ways.toml` writes it");
    return;
  }
  constexpr const char* kWrites = "`isthmus bench collectives CONFIG --out FILE` writes one";
  std::error_code unreadable;
  if (!std::filesystem::exists(table, unreadable)) {
    refuse("E-VALUE", "net.table", fmt::format("'net.table': {}: no such file", table.string()),
           kWrites);
    return;
  }
  WaysFile file;
  try {
    file = read_ways_file(table);
  } catch (const ConfigErrors& errors) {
    refuse("E-VALUE", "net.table", fmt::format("'net.table': {}", errors.summary()));
    return;
  } catch (const Error& error) {
    refuse("E-VALUE", "net.table", fmt::format("'net.table': {}", error.what()), kWrites);
    return;
  }
  std::vector<std::string> names;
  for (const SiteConfig& site : config.sites) names.push_back(site.name);
  if (file.sites != names) {
    refuse("E-CONFLICT", "net.table",
           fmt::format("'net.table': {} is for sites {}, and this file has {}", table.string(),
                       fmt::join(file.sites, ", "), fmt::join(names, ", ")),
           "write one for them: isthmus bench collectives CONFIG --out FILE");
    return;
  }
  for (NotedWay& noted : file.ways) config.net.ways.push_back(std::move(noted.way));
}

void Loader::check_shares() {
  take_ways();
  const MethodInfo* info = method();
  if (config.net.shares == "auto" || info == nullptr) {
    return;
  }
  const auto [why, remedy] = shares_obstacle(config, *info);
  if (!why.empty()) {
    refuse("E-CONFLICT", "net.shares", fmt::format("{}: {}", quoted("net.shares"), why), remedy);
  }
}

// What keeps a site from taking along what it trains on alone, and what helps; empty: nothing.
std::pair<std::string, std::string> Loader::alone_for_nothing() const {
  constexpr std::array<std::string_view, 3> kCarry = {"localsgd", "diloco", "streaming-diloco"};
  const MethodInfo* info = method();
  if (info == nullptr) return {};
  if (std::ranges::find(kCarry, info->name) == kCarry.end()) {
    return {fmt::format("method '{}' takes none", info->name),
            fmt::format("choose outer.method = {}", fmt::join(kCarry, ", "))};
  }
  if (config.outer.carry != LostContribution::kCarry) {
    return {"outer.carry is not \"carry\"", "set outer.carry = \"carry\""};
  }
  if (!config.train.offload.empty()) {
    return {"with train.offload there is no room for it in memory", "leave train.offload out"};
  }
  return {};
}

void Loader::apply_solo_default() {
  if (given("net.max_solo_rounds") || alone_for_nothing().first.empty()) return;
  config.net.max_solo_rounds = 0;
  default_origins["net.max_solo_rounds"] = "default: " + alone_for_nothing().first;
}

void Loader::check_solo() {
  const auto [why, remedy] = alone_for_nothing();
  if (!given("net.max_solo_rounds") || config.net.max_solo_rounds == 0 || why.empty()) return;
  refuse("E-CONFLICT", "net.max_solo_rounds",
         fmt::format("{}: a site that trains on alone takes its work along when it is found again, "
                     "and {}",
                     quoted("net.max_solo_rounds"), why),
         fmt::format("remove it, since such a site waits; or {}", remedy));
}

void Loader::check_deadline() {
  const MethodInfo* info = method();
  if (!config.net.deadline || info == nullptr) {
    return;
  }
  const std::string what = quoted("net.deadline");
  if (!info->takes("carry") && info->name != "sparseloco") {
    refuse("E-CONFLICT", "net.deadline",
           fmt::format("{}: method '{}' has no rule for what a site gave to a round that did not "
                       "count it",
                       what, info->name),
           "remove it, or choose a method with outer.carry");
  }
  const auto needs = std::max<std::int64_t>(config.net.min_sites.value_or(1),
                                            (2 * std::int64_t{config.workers()} + 2) / 3);
  if (needs >= config.workers()) {
    const bool few = config.workers() < 3;
    refuse(
        "E-CONFLICT", "net.deadline",
        fmt::format("{}: it passes once {} sites have begun a round, of {} with one that is late",
                    what, needs, config.workers()),
        few ? "remove it: with fewer than three sites all wait for each other"
            : "remove it, or set a smaller net.min_sites");
  }
}

}  // namespace isthmus::config
