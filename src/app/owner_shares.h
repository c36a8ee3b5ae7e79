// SPDX-License-Identifier: Apache-2.0
// Which site reduces how much of a round (net.shares). Pure functions of the configuration, so all
// sites of a run find the same; no result depends on it, since owner borders are tile borders.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "isthmus/config.h"

namespace isthmus::app {

/// PeerExchangeOptions::shares with net.shares = "even": nothing for sites without an address,
/// whose contributions would all pass a relay, where some have one. None: even for all.
[[nodiscard]] std::vector<std::uint32_t> even_shares(const Config& config);

/// PeerExchangeOptions::shares of a run. Where all sends to all, or in groups: even_shares.
/// Otherwise by the file's [[link]]s with "links", and with "auto" where that is worth it
/// (plan/exchange_ways.h) and the file joins every pair of sites.
/// THROWS: ConfigError with "links" where it does not.
[[nodiscard]] std::vector<std::uint32_t> owner_shares(const Config& config);

/// "even", or "0:1365:1365:1366".
[[nodiscard]] std::string words_of_shares(const std::vector<std::uint32_t>& shares);

/// What sites must have alike about it, as common_values (config.h) has the rest.
void append_shares(const Config& config, std::vector<std::pair<std::string, std::string>>& common);

/// THROWS: ConfigError where net.shares = "links" can mean nothing in this run.
void check_shares(const Config& config);

}  // namespace isthmus::app
