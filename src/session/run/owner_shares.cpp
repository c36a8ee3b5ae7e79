// SPDX-License-Identifier: Apache-2.0
#include "session/run/owner_shares.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "isthmus/errors.h"
#include "isthmus/outer.h"
#include "outer/parts/settings.h"
#include "session/run/hidden_sites.h"
#include "session/run/run_settings.h"
#include "sim/link_shares.h"
#include "sim/topology.h"
#include "transport/exchange/reduction.h"

namespace isthmus::app {
namespace {

[[noreturn]] void refuse(const Config& config, const std::string& why, const std::string& remedy) {
  throw ConfigError(fmt::format("net.shares = \"{}\": {}; {}", config.net.shares, why, remedy));
}

/// Two facts about an earlier program's site, whose rounds would come to no end with this one's.
constexpr std::string_view kTable =
    "what net.table says, with net.shares = \"table\" (it takes the same file at all sites)";
constexpr std::string_view kSharesMove = "whether shares move (net.shares = \"measured\")";

/// That rounds have owners, and enough of them. The method is one that can.
void check_rounds(const Config& config) {
  if (config.workers() <= 2) {
    refuse(config,
           fmt::format("of {} site(s) each moves as much under all shares", config.workers()),
           "remove it");
  }
  const std::shared_ptr<const Codec> codec =
      make_codec(outer::codec_of(info_of(config.method), config.outer));
  if (resolve_reduction(config.outer.exchange, *codec, config.workers()) !=
      ReductionKind::kReduce) {
    refuse(config,
           fmt::format("with outer.codec = {} and {} workers all is sent to all, and nobody owns a "
                       "share",
                       codec->name(), config.workers()),
           "remove it, or set outer.exchange = \"reduce\"");
  }
}

/// Each with a rate, as the loader has them. THROWS: ConfigError where two sites have none.
std::vector<DirectedLink> declared_links(const Config& config) {
  if (config.links.empty()) {
    refuse(config, "there is no [[link]] for shares to follow",
           "add them (isthmus bench link measures), give --links FILE, or remove it");
  }
  std::vector<std::string> sites;
  for (const SiteConfig& site : config.sites) sites.push_back(site.name);
  return link_matrix(config.links, sites);
}

}  // namespace

std::vector<std::uint32_t> even_shares(const Config& config) {
  const std::vector<WorkerId> hidden = hidden_sites(config.sites);
  std::vector<std::uint32_t> shares;
  if (hidden.empty() || hidden.size() == config.sites.size()) return shares;
  for (const SiteConfig& site : config.sites) shares.push_back(site.address.empty() ? 0 : 1);
  return shares;
}

std::vector<std::uint32_t> owner_shares(const Config& config) {
  if (config.net.shares != "links") return {};
  check_rounds(config);
  const std::vector<std::uint32_t> even = even_shares(config);
  std::vector<std::uint32_t> shares =
      shares_by_links(declared_links(config), config.workers(), even);
  if (shares.empty()) shares = even;
  const auto owners = std::ranges::count_if(shares, [](std::uint32_t each) { return each > 0; });
  if (owners == 1) {
    const auto owner = std::ranges::max_element(shares) - shares.begin();
    refuse(config,
           fmt::format("by links and addresses site '{}' would own all of a round, and the others "
                       "do not notice when it stands still",
                       config.sites[static_cast<std::size_t>(owner)].name),
           "remove it");
  }
  return shares;
}

std::vector<std::uint32_t> first_shares(const Config& config) {
  return config.net.shares == "links" ? owner_shares(config) : even_shares(config);
}

std::string words_of_shares(const std::vector<std::uint32_t>& shares) {
  return shares.empty() ? "even" : fmt::format("{}", fmt::join(shares, ":"));
}

void append_shares(const Config& config, std::vector<std::pair<std::string, std::string>>& common) {
  common.emplace_back(kSharesMove, "no");
  common.emplace_back(kTable, "nothing");
  if (config.net.shares != "links") return;
  common.emplace_back(
      "what net.shares = \"links\" makes of the [[link]]s (it takes the same file, or the same "
      "--links, at all sites)",
      words_of_shares(owner_shares(config)));
}

void check_log_shares(const std::vector<std::pair<std::string, std::string>>& logged) {
  const auto found = std::ranges::find(
      logged, kSharesMove, [](const auto& each) { return std::string_view(each.first); });
  if (found == logged.end() || found->second != "yes") return;
  throw ConfigError(
      "the run in the hub's log was begun by an earlier program with shares that move (net.shares "
      "= "
      "\"measured\"), which this program does not have: end all sites, start them anew and give "
      "the "
      "hub another --out");
}

}  // namespace isthmus::app
