// SPDX-License-Identifier: Apache-2.0
// Which site reduces how much of a round (net.shares). Pure functions of the configuration, so all
// sites of a run find the same; no result depends on it, since owner borders are tile borders.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "isthmus/config.h"
#include "transport/exchange/measured_shares.h"
#include "transport/exchange/reduction.h"

namespace isthmus::app {

/// PeerExchangeOptions::shares of sites apart with net.shares = "auto": nothing for those without
/// an address, whose contributions would all pass a relay, where some have one. None: even for all.
[[nodiscard]] std::vector<std::uint32_t> even_shares(const Config& config);

/// With net.shares = "links": by the file's [[link]]s, of the sites that even_shares leaves; links
/// that are alike leave those. With "auto": none; "measured" and "table": none either.
/// THROWS: ConfigError where the key can mean nothing in this run.
[[nodiscard]] std::vector<std::uint32_t> owner_shares(const Config& config);

/// PeerExchangeOptions::table: with net.shares = "table" what its file says, else none.
[[nodiscard]] std::vector<SharesOfSize> table_of_shares(const Config& config);

/// "even", or "0:1365:1365:1366".
[[nodiscard]] std::string words_of_shares(const std::vector<std::uint32_t>& shares);

/// What a run of sites apart begins with: owner_shares with "links", else even_shares; with
/// "measured" they move from there. THROWS: as owner_shares.
[[nodiscard]] std::vector<std::uint32_t> first_shares(const Config& config);

/// What a prediction reckons with: with "measured" those that the declared links would bring, if
/// there are any, since a run comes close to them; else owner_shares. THROWS: as owner_shares.
[[nodiscard]] std::vector<std::uint32_t> settled_shares(const Config& config);

/// THROWS: ConfigError for "measured" in a job of MPI, or with a method whose rounds are not each
/// committed, unless the exchange is elastic and commits every one.
void check_measuring_links(const Config& config, bool mpi, bool elastic);

/// One line for people.
[[nodiscard]] std::string words_of(const ShareMove& move, const std::vector<std::string>& sites);

/// What sites, and a hub, must have alike about it, as common_values (config.h) has the rest:
/// whether shares move, what a table says, and owner_shares with "links". THROWS: as owner_shares.
void append_shares(const Config& config, std::vector<std::pair<std::string, std::string>>& common);

/// `logged`: what the sites of the run in a hub's log had alike. One without the entry is of a
/// build in which shares did not move. THROWS: ConfigError where they move by one of both alone.
void check_log_shares(const Config& config,
                      const std::vector<std::pair<std::string, std::string>>& logged);

}  // namespace isthmus::app
