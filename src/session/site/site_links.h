// SPDX-License-Identifier: Apache-2.0
// The links of one site from a configuration: addresses, keys and options. Used by a run's sites
// (site_session.h) and `bench link`.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "isthmus/config.h"
#include "session/run/site_arguments.h"
#include "transport/links/network_transport.h"

namespace isthmus::app {

class StatusBoard;

/// Options of site `self`, with its key if sites have keys. `status`: receives events of the links;
/// borrowed, may be null. THROWS: ConfigError, SystemError for an unusable key.
[[nodiscard]] MemberOptions link_options(const Config& config, const SiteArguments& arguments,
                                         WorkerId self, StatusBoard* status = nullptr);

/// RETURNS: HOST of "HOST:PORT"; the whole address if it has no port.
[[nodiscard]] std::string host_of(const std::string& address);

/// Replaces addresses of the file by "NAME=HOST:PORT"; NAME is a [[site]], or "hub" if the file has
/// one. THROWS: UsageError, which calls an address `what`.
void set_addresses(Config& config, std::span<const std::string> addresses,
                   std::string_view what = "--address");

/// For runs that continue without a lost member: it may rejoin, so a wrong loss costs little.
void let_come_back(MemberOptions& options);

/// Whether there is a hub besides the sites: the sites' links then need its endpoint and key.
[[nodiscard]] bool has_hub(const Config& config, const SiteArguments& arguments);
/// The coordinator of a run of sites: the hub, or site 0.
[[nodiscard]] WorkerId coordinator_of(const Config& config, const SiteArguments& arguments);
/// Adds the hub to a site's options. THROWS: ConfigError when only the hub or only the sites have
/// keys.
void add_hub(const Config& config, MemberOptions& options);
/// The hub's own options; `arguments`: listen and key_file. THROWS: as link_options.
[[nodiscard]] MemberOptions hub_link_options(const Config& config, const SiteArguments& arguments);

/// keys/NAME.key next to the file, or the file of --key.
[[nodiscard]] std::filesystem::path own_key_file(const Config& config,
                                                 const SiteArguments& arguments,
                                                 const std::string& name);

/// Whether the run continues without a lost site: as configured, or by default if every round
/// commits by itself, so that it costs nothing. THROWS: ConfigError for an impossible setting.
[[nodiscard]] bool is_elastic(const Config& config, const SiteArguments& arguments);

/// Whether a loss rolls back the steps since the last commit (outer.commit), which the other sites
/// take again. Otherwise each round of an elastic run commits by itself.
[[nodiscard]] bool takes_steps_back(const Config& config, const SiteArguments& arguments);

}  // namespace isthmus::app
