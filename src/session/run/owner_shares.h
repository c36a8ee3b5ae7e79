// SPDX-License-Identifier: Apache-2.0
// The share of a round that each site reduces (net.shares). Pure functions of the configuration, so
// all sites compute the same. No result depends on shares, since borders between owners are borders
// of tiles.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "isthmus/config.h"

namespace isthmus::app {

/// PeerExchangeOptions::shares of separate sites with net.shares = "auto": 0 for sites without an
/// address, whose traffic passes a relay, if other sites have one. Empty: even for all.
[[nodiscard]] std::vector<std::uint32_t> even_shares(const Config& config);

/// With net.shares = "links": shares by the file's [[link]]s, among the sites that even_shares
/// allows; even_shares itself if the links are alike. Empty for "auto".
/// THROWS: ConfigError when the key has no meaning in this run.
[[nodiscard]] std::vector<std::uint32_t> owner_shares(const Config& config);

/// "even", or "0:1365:1365:1366".
[[nodiscard]] std::string words_of_shares(const std::vector<std::uint32_t>& shares);

/// The shares of a run of separate sites: owner_shares for "links", else even_shares. THROWS: as
/// owner_shares.
[[nodiscard]] std::vector<std::uint32_t> first_shares(const Config& config);

/// The values about shares that sites, and a hub, must have equal, like common_values (config.h):
/// owner_shares with "links". THROWS: as owner_shares.
void append_shares(const Config& config, std::vector<std::pair<std::string, std::string>>& common);

/// `logged`: the common values of the sites in a hub's log. THROWS: ConfigError when an earlier
/// program wrote the log and its shares move.
void check_log_shares(const std::vector<std::pair<std::string, std::string>>& logged);

}  // namespace isthmus::app
