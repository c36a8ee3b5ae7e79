// SPDX-License-Identifier: Apache-2.0
// What a configuration says about the links of one site: addresses, keys, how they are opened. For
// all that opens them: a run's sites (site_session.h) and `bench link`.
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

/// Options of site `self`, with its key where sites have keys. THROWS: ConfigError, SystemError for
/// a key that cannot be used.
/// `status`: told of what happens to the links; borrowed, may be null.
[[nodiscard]] MemberOptions link_options(const Config& config, const SiteArguments& arguments,
                                         WorkerId self, StatusBoard* status = nullptr);

/// RETURNS: HOST of "HOST:PORT"; all of an address without a port.
[[nodiscard]] std::string host_of(const std::string& address);

/// Puts "NAME=HOST:PORT" in the place of the file's addresses; NAME is a [[site]], or "hub" where
/// the file has one. THROWS: UsageError, which calls a text `what`.
void set_addresses(Config& config, std::span<const std::string> addresses,
                   std::string_view what = "--address");

/// For runs that go on without a lost member: it may come back, so a wrong guess costs little.
void let_come_back(MemberOptions& options);

/// The hub beyond the sites, where there is one: endpoints and keys of the sites' links.
[[nodiscard]] bool has_hub(const Config& config, const SiteArguments& arguments);
/// The coordinator of a run of sites: the hub, or the first of them.
[[nodiscard]] WorkerId coordinator_of(const Config& config, const SiteArguments& arguments);
/// Adds the hub to a site's options. THROWS: ConfigError for keys of the hub without those of sites
/// and the other way round.
void add_hub(const Config& config, MemberOptions& options);
/// The hub's own options; `arguments`: listen and key_file. THROWS: as link_options.
[[nodiscard]] MemberOptions hub_link_options(const Config& config, const SiteArguments& arguments);

/// keys/NAME.key beside the file, or what --key names.
[[nodiscard]] std::filesystem::path own_key_file(const Config& config,
                                                 const SiteArguments& arguments,
                                                 const std::string& name);

/// Whether the run goes on without a lost site: by wish, or where that costs nothing, which is
/// where every round commits by itself. THROWS: ConfigError for a wish that cannot be.
[[nodiscard]] bool is_elastic(const Config& config, const SiteArguments& arguments);

/// Whether a lost site takes back the steps since the last commit (outer.commit), which the others
/// take again. Otherwise each round of an elastic run commits by itself.
[[nodiscard]] bool takes_steps_back(const Config& config, const SiteArguments& arguments);

}  // namespace isthmus::app
