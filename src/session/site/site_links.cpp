// SPDX-License-Identifier: Apache-2.0
#include "session/site/site_links.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "config/schema/send_cap.h"
#include "core/base/hash.h"
#include "core/base/log.h"
#include "core/base/storage.h"
#include "isthmus/errors.h"
#include "isthmus/outer.h"
#include "record/status_board.h"
#include "record/wall_clock.h"
#include "session/run/run_settings.h"
#include "session/run/send_limit.h"
#include "session/run/usage_error.h"
#include "session/site/site_routes.h"
#include "transport/links/link_keys.h"

namespace isthmus::app {
namespace {

/// Where to bind: as told, or the site's port on all interfaces, or on loopback where that is its
/// address.
std::string listens_at(const std::string& address, const std::string& listen) {
  if (!listen.empty()) {
    return "tcp://" + listen;
  }
  if (address.empty()) {  // a relay brings all incoming connections
    return "tcp://127.0.0.1:*";
  }
  const std::string host = host_of(address);
  const std::string port = address.substr(address.rfind(':'));
  const bool loopback = host == "localhost" || host == "[::1]" || host.starts_with("127.");
  return "tcp://" + (loopback ? (host == "localhost" ? "127.0.0.1" : host) : "*") + port;
}

/// Of the site's in `keys`; null: the hub's.
std::string* own_place(const Config& config, const std::string& own,
                       std::vector<std::string>& keys) {
  for (std::size_t i = 0; i < config.sites.size(); ++i) {
    if (config.sites[i].name == own) return &keys.at(i);
  }
  return nullptr;
}

/// All sites have a key, or none; or a hub with a key lets those in that have none.
void take_keys(const Config& config, const SiteArguments& arguments, const std::string& own,
               MemberOptions& options) {
  const bool by_hub = has_hub(config, arguments) && !config.hub.key.empty();
  const auto keyless =
      std::ranges::find_if(config.sites, [](const SiteConfig& site) { return site.key.empty(); });
  const auto keyed =
      std::ranges::find_if(config.sites, [](const SiteConfig& site) { return !site.key.empty(); });
  if (keyless != config.sites.end() && keyed != config.sites.end() && !by_hub) {
    throw ConfigError(fmt::format(
        "site '{}' has no key and site '{}' has one: give every site the public key that `isthmus "
        "keygen` printed for it, or none; or a [hub] with a key, which can invite sites that have "
        "none",
        keyless->name, keyed->name));
  }
  if (by_hub || keyed != config.sites.end()) {
    for (const SiteConfig& site : config.sites) {
      if (!site.key.empty()) check_public_key(site.key, fmt::format("key of site '{}'", site.name));
      options.member_keys.push_back(site.key);
    }
    options.keys = read_secret_key(own_key_file(config, arguments, own));
    if (std::string* key = own_place(config, own, options.member_keys); key && key->empty()) {
      *key = options.keys->public_key;
    }
  } else if (!arguments.key_file.empty()) {
    throw ConfigError(
        fmt::format("--key {}: no site has a public key in {}: add key = \"…\" to every [[site]]",
                    arguments.key_file.string(), config.file.string()));
  }
}

/// The options that all links of the run share.
MemberOptions options_of(const Config& config, WorkerId self, const std::string& name,
                         StatusBoard* status) {
  MemberOptions options;
  options.self = self;
  options.members = config.workers();
  options.identity.run = xxh3_128(as_bytes(config.run.name));
  // The rest is compared key by key: HelloNote.
  options.name = name;
  for (const SiteConfig& each : config.sites) {
    options.expected_names.push_back(each.name);
  }
  set_streams(options, config.net.streams);
  options.dead_after = config.net.dead_after;
  options.plaintext = config.net.plaintext;
  options.relayed = hidden_sites(config.sites);
  options.detours = has_detours(config);
  options.heartbeat = std::min<Duration>(options.heartbeat, config.net.dead_after / 4);
  options.on_event = [self, status](const LinkEvent& event) {
    if (status != nullptr) status->link(self, event);
    switch (event.kind) {
      case LinkEvent::Kind::kConnected:
      case LinkEvent::Kind::kWelcomed:
      case LinkEvent::Kind::kRetried:
        log_debug("link: {}", event.text);
        break;
      case LinkEvent::Kind::kAdapted:
      case LinkEvent::Kind::kLeft:
        log_info("link: {}", event.text);
        break;
      default:
        log_warning("link: {}", event.text);
    }
  };
  if (status != nullptr) {
    options.on_reading = [status](WorkerId peer, const LinkReading& reading) {
      status->reading(peer, reading);
    };
  }
  return options;
}

}  // namespace

std::string host_of(const std::string& address) { return address.substr(0, address.rfind(':')); }

void set_addresses(Config& config, std::span<const std::string> addresses, std::string_view what) {
  for (const std::string& text : addresses) {
    const std::size_t equals = text.find('=');
    const std::string name = text.substr(0, equals);
    if (name == "hub" && equals != std::string::npos && !config.hub.address.empty()) {
      config.hub.address = text.substr(equals + 1);
      continue;
    }
    const auto site = std::ranges::find(config.sites, name, &SiteConfig::name);
    if (equals == std::string::npos || site == config.sites.end()) {
      throw UsageError(
          fmt::format("{} {}: must be NAME=HOST:PORT with the name of a [[site]]", what, text));
    }
    site->address = text.substr(equals + 1);
  }
}

std::filesystem::path own_key_file(const Config& config, const SiteArguments& arguments,
                                   const std::string& name) {
  return arguments.key_file.empty() ? config.locate(fmt::format("keys/{}.key", name))
                                    : arguments.key_file;
}

bool is_elastic(const Config& config, const SiteArguments& arguments) {
  if (arguments.mpi || config.workers() == 1) {
    return false;
  }
  for (const MethodInfo& method : methods()) {
    if (method.name == config.method) {
      const bool wished = config.net.min_sites.has_value();
      const bool hub = has_hub(config, arguments);
      if (method.name == "01-adam" && !hub && config.min_sites() == config.workers()) return false;
      if ((wished || hub) && method.name == "01-adam") {
        throw ConfigError(
            "net.min_sites or [hub] with outer.method = \"01-adam\": its workers take local steps "
            "that no "
            "round of the others tells of, so nobody can join it: leave it out");
      }
      return wished || hub || method.commits_rounds;
    }
  }
  return false;
}

// Who has not asked for it gives no memory to a copy, and a state in files is not copied into it.
// A round in a late site's name has no step to go back to: there each round commits by itself.
bool takes_steps_back(const Config& config, const SiteArguments& arguments) {
  return config.origins.contains("outer.commit") && config.outer.commit_every > 1 &&
         is_elastic(config, arguments) && !info_of(config.method).commits_rounds &&
         config.train.offload.empty() && !config.net.deadline;
}

MemberOptions link_options(const Config& config, const SiteArguments& arguments, WorkerId self,
                           StatusBoard* status) {
  const SiteConfig& site = config.sites[static_cast<std::size_t>(self.value())];
  if (site.address.empty() && !arguments.listen.empty()) {
    throw ConfigError(
        fmt::format("--listen {} at site '{}', which has no address: nobody dials it, since its "
                    "relay passes on "
                    "what comes for it: leave --listen out, or give the site an address",
                    arguments.listen, site.name));
  }
  MemberOptions options = options_of(config, self, site.name, status);
  options.bind = listens_at(site.address, arguments.listen);
  options.relays = !site.relay.empty();
  options.send_bits_per_s = send_limit(config, site);
  take_keys(config, arguments, site.name, options);
  return options;
}

void let_come_back(MemberOptions& options) {
  options.readmits = true;
  options.gone_after = std::chrono::milliseconds(1500);
}

bool has_hub(const Config& config, const SiteArguments& arguments) {
  return !config.hub.address.empty() && !arguments.mpi;
}

WorkerId coordinator_of(const Config& config, const SiteArguments& arguments) {
  return WorkerId(has_hub(config, arguments) ? config.workers() : 0);
}

void add_hub(const Config& config, MemberOptions& options) {
  ++options.members;
  options.expected_names.emplace_back("hub");
  if (config.hub.key.empty() != options.member_keys.empty()) {
    throw ConfigError(fmt::format(
        "the sites have {} and the hub has {}: give each the public key that `isthmus keygen` "
        "printed for it ([hub] key = \"…\"), or none",
        options.member_keys.empty() ? "no keys" : "keys", config.hub.key.empty() ? "none" : "one"));
  }
  if (!config.hub.key.empty()) {
    check_public_key(config.hub.key, "hub.key");
    options.member_keys.push_back(config.hub.key);
    options.keys_from = WorkerId(config.workers());
    options.keys_come =
        std::ranges::any_of(config.sites, [](const SiteConfig& site) { return site.key.empty(); });
  }
}

MemberOptions hub_link_options(const Config& config, const SiteArguments& arguments) {
  MemberOptions options = options_of(config, WorkerId(config.workers()), "hub", nullptr);
  options.bind = listens_at(config.hub.address, arguments.listen);
  options.relays = !config.hub.relay.empty();
  take_keys(config, arguments, "hub", options);
  add_hub(config, options);
  return options;
}

}  // namespace isthmus::app
