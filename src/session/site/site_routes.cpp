// SPDX-License-Identifier: Apache-2.0
#include "session/site/site_routes.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/base/log.h"
#include "isthmus/errors.h"
#include "session/site/link_rendezvous.h"

namespace isthmus::app {
namespace {

/// `host:port`, the host possibly in brackets.
bool is_address(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) {
    return false;
  }
  const std::string port = text.substr(colon + 1);
  return !port.empty() && port.size() <= 5 &&
         port.find_first_not_of("0123456789") == std::string::npos && std::stoi(port) >= 1 &&
         std::stoi(port) <= 65535;
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

bool contains(const std::vector<WorkerId>& all, WorkerId rank) {
  return std::ranges::find(all, rank) != all.end();
}

}  // namespace

std::vector<WorkerId> needed_relays(const Config& config) {
  std::vector<WorkerId> relays;
  if (!config.hub.relay.empty()) return relays;
  for (std::size_t i = 0; i < config.sites.size(); ++i) {
    if (!config.sites[i].relay.empty()) relays.push_back(WorkerId(static_cast<int>(i)));
  }
  return relays;
}

bool has_detours(const Config& config) {
  // Sites that are all started on one machine are given addresses there, and relays are not.
  const auto serves = [](const std::string& relay, const std::string& address) {
    const auto here = [](const std::string& place) {
      return is_loopback(place.substr(0, place.rfind(':')));
    };
    return !relay.empty() && here(relay) == here(address);
  };
  const bool by_site = std::ranges::any_of(
      config.sites, [&](const SiteConfig& site) { return serves(site.relay, site.address); });
  const bool by_hub = serves(config.hub.relay, config.hub.address);
  return config.net.detour && (by_hub || (by_site && config.sites.size() > 2));
}

void check_addresses(const Config& config) {
  const bool relayed =
      !config.hub.relay.empty() ||
      std::ranges::any_of(config.sites, [](const SiteConfig& site) { return !site.relay.empty(); });
  std::map<std::string, std::string> taken;
  const auto check = [&](const SiteConfig& site, const char* key, const std::string& place,
                         const std::string& more) {
    if (!is_address(place)) {
      throw ConfigError(fmt::format(
          "site '{}': {} = \"{}\": must be HOST:PORT, where the other sites reach it, for "
          "example {} = \"{}.example.org:48200\"{}",
          site.name, key, place, key, site.name, more));
    }
    if (const auto [other, fresh] = taken.emplace(place, site.name); !fresh) {
      throw ConfigError(
          other->second == site.name
              ? fmt::format("site '{}' has the same address and relay {}: each needs its own port",
                            site.name, place)
              : fmt::format("sites '{}' and '{}' have the same address {}: each needs its own",
                            other->second, site.name, place));
    }
  };
  if (!config.hub.address.empty()) {
    taken.emplace(config.hub.address, "hub");
    if (!is_address(config.hub.address)) {
      throw ConfigError(fmt::format(
          "hub.address = \"{}\": must be HOST:PORT, where the sites reach the hub, for example "
          "\"hub.example.org:48199\"",
          config.hub.address));
    }
  }
  if (!config.hub.relay.empty()) {
    if (!is_address(config.hub.relay)) {
      throw ConfigError(fmt::format(
          "hub.relay = \"{}\": must be HOST:PORT, where the sites reach the hub's relay, for "
          "example \"hub.example.org:48198\"",
          config.hub.relay));
    }
    if (!taken.emplace(config.hub.relay, "hub").second) {
      throw ConfigError(fmt::format(
          "hub.relay and hub.address are both {}: each needs its own port", config.hub.relay));
    }
  }
  for (const SiteConfig& site : config.sites) {
    if (site.address.empty() && !site.relay.empty()) {
      throw ConfigError(fmt::format(
          "site '{}': relay = \"{}\" without an address: only a site that the others can dial "
          "relays for others; give it address = \"HOST:PORT\", or another site the relay",
          site.name, site.relay));
    }
    if (!site.address.empty() || !relayed) {
      check(site, "address", site.address,
            "; if nobody can dial it (NAT), give a site that all can dial, or the [hub], a relay = "
            "\"HOST:PORT\"");
    }
    if (!site.relay.empty()) check(site, "relay", site.relay, "");
  }
}

SiteRoutes::SiteRoutes(Runtime& runtime, std::span<const SiteConfig> sites,
                       const MemberOptions& options, const std::string& endpoint,
                       const std::shared_ptr<const AnnouncedKeys>& told, HubRelay hub)
    : hidden_(hidden_sites(sites)), detours_(static_cast<std::size_t>(options.members)) {
  for (const SiteConfig& site : sites) {
    endpoints_.push_back("tcp://" + site.address);
    names_.push_back(site.name);
  }
  if (hidden_.empty() && !options.detours) return;
  if (!hidden_.empty() && options.most_streams > options.streams) {
    log_info(
        "net.streams = \"auto\": links to sites without an address keep {} connections, since "
        "TCP's "
        "counters tell nothing of the way behind a relay",
        options.streams);
  }
  RelayedLinks::Routes routes;
  routes.hidden = hidden_;
  for (std::size_t i = 0; i <= sites.size(); ++i) {  // the hub last
    const std::string& relay = i < sites.size() ? sites[i].relay : hub.place;
    if (relay.empty()) continue;
    const WorkerId member(static_cast<int>(i));
    check_endpoint("tcp://" + relay, false, may_leave_machine(options));
    HostPort place = parse_host_port("relay", relay);
    if (member == options.self) {
      const std::string host = place.host == "localhost"                   ? "127.0.0.1"
                               : is_loopback(place.host)                   ? place.host
                               : place.host.find(':') != std::string::npos ? "::"
                                                                           : "0.0.0.0";
      if (hub.running) {
        relay_ = std::move(hub.running);
        relay_->listen_to(told);
      } else {
        relay_ = std::make_unique<Relay>(runtime, options, host, place.port, told);
      }
      place.host = host == "0.0.0.0" ? "127.0.0.1" : host == "::" ? "::1" : host;
    }
    relays_ += (relays_.empty() ? "" : ", ") + relay;
    routes.relays.push_back({.member = member, .host = place.host, .port = place.port});
  }
  // One's own is the nearest.
  std::stable_partition(routes.relays.begin(), routes.relays.end(),
                        [&](const RelayPlace& relay) { return relay.member == options.self; });
  const HostPort own = parse_host_port("endpoint", endpoint.substr(endpoint.rfind('/') + 1));
  routes.own_port = own.port;
  routes.own_host = own.host.empty() || own.host == "0.0.0.0" ? "127.0.0.1"
                    : own.host == "::"                        ? "::1"
                                                              : own.host;
  if (contains(hidden_, options.self)) {
    endpoints_[static_cast<std::size_t>(options.self.value())] = endpoint;
  }
  for (int member = 0; options.detours && member < options.members; ++member) {
    const bool by_third = std::ranges::any_of(
        routes.relays, [&](const RelayPlace& relay) { return relay.member != WorkerId(member); });
    if (by_third && !contains(hidden_, WorkerId(member)))
      routes.detours.push_back(WorkerId(member));
  }
  const std::vector<WorkerId> detours = routes.detours;
  links_ = std::make_unique<RelayedLinks>(runtime, options, std::move(routes), told);
  for (const WorkerId site : hidden_) {
    if (site != options.self) {
      endpoints_[static_cast<std::size_t>(site.value())] = links_->endpoint(site);
    }
  }
  for (const WorkerId site : detours) {
    if (site != options.self) {
      detours_[static_cast<std::size_t>(site.value())] = links_->endpoint(site);
    }
  }
}

std::string SiteRoutes::way(WorkerId site) const {
  return contains(hidden_, site) ? "by way of " + relays_ : "";
}

std::string SiteRoutes::trouble(WorkerId site) const {
  return contains(hidden_, site) ? links_->trouble(site) : "";
}

std::string SiteRoutes::troubles() const {
  std::string text;
  for (const WorkerId site : hidden_) {
    if (const std::string why = links_->trouble(site); !why.empty()) {
      text += fmt::format("; {} by way of {}", names_[static_cast<std::size_t>(site.value())], why);
    }
  }
  return text;
}

void SiteRoutes::finish_in_order() {
  if (relay_) relay_->finish_in_order();
}

}  // namespace isthmus::app
