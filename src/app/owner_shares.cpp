// SPDX-License-Identifier: Apache-2.0
#include "app/owner_shares.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "app/largest_round.h"
#include "app/site_routes.h"
#include "isthmus/errors.h"
#include "isthmus/outer.h"
#include "outer/settings.h"
#include "plan/exchange_ways.h"
#include "sim/topology.h"
#include "transport/reduction.h"

namespace isthmus::app {
namespace {

/// Of rounds that could have owners; null: the method has none.
std::shared_ptr<const Codec> codec_of_means(const Config& config) {
  const std::vector<MethodInfo> known = methods();
  const auto method = std::ranges::find(known, config.method, &MethodInfo::name);
  if (method == known.end() || !method->takes("exchange")) return nullptr;
  return make_codec(outer::codec_of(*method, config.outer));
}

/// Whether rounds of the run have owners.
bool reduces(const Config& config) {
  const std::shared_ptr<const Codec> codec = codec_of_means(config);
  return codec != nullptr && resolve_reduction(config.outer.exchange, *codec, config.workers()) ==
                                 ReductionKind::kReduce;
}

std::vector<DirectedLink> links_of(const Config& config) {
  std::vector<std::string> sites;
  for (const SiteConfig& site : config.sites) sites.push_back(site.name);
  return link_matrix(config.links, sites);
}

/// Nothing where a pair has no link: `train` needs none.
std::optional<std::vector<DirectedLink>> links_if_whole(const Config& config) {
  try {
    return links_of(config);
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

/// Of a few tiles, unlike sections are less even than of many, and what one owner reduces in one
/// part it answers late.
bool prediction_agrees(const Config& config, const std::vector<std::uint32_t>& shares,
                       const std::vector<std::uint32_t>& even) {
  PredictionInput round = largest_round(config).input;
  round.exchange = ReductionKind::kReduce;
  round.shares = even;
  const double evenly_s = predict(round).predicted_s;
  round.shares = shares;
  return predict(round).predicted_s <= kSharesLoss * evenly_s;
}

}  // namespace

std::vector<std::uint32_t> even_shares(const Config& config) {
  const std::vector<Rank> hidden = hidden_sites(config.sites);
  std::vector<std::uint32_t> shares;
  if (hidden.empty() || hidden.size() == config.sites.size()) return shares;
  for (const SiteConfig& site : config.sites) shares.push_back(site.address.empty() ? 0 : 1);
  return shares;
}

std::vector<std::uint32_t> owner_shares(const Config& config) {
  const std::vector<std::uint32_t> even = even_shares(config);
  if (config.net.shares == "even" || config.net.reduction == "groups" || !reduces(config)) {
    return even;
  }
  std::vector<std::uint32_t> shares;
  if (config.net.shares == "links") {
    shares = shares_by_links(links_of(config), config.workers(), even);
  } else if (const auto links = links_if_whole(config)) {
    shares = shares_worth_it(*links, config.workers(), even);
    if (!shares.empty() && !prediction_agrees(config, shares, even)) shares.clear();
  }
  return shares.empty() ? even : shares;
}

std::string words_of_shares(const std::vector<std::uint32_t>& shares) {
  return shares.empty() ? "even" : fmt::format("{}", fmt::join(shares, ":"));
}

void append_shares(const Config& config, std::vector<std::pair<std::string, std::string>>& common) {
  if (!reduces(config)) return;
  common.emplace_back("shares of the reduction (net.shares, [[link]], addresses)",
                      words_of_shares(owner_shares(config)));
}

void check_shares(const Config& config) {
  if (config.net.shares != "links") return;
  if (config.links.empty()) {
    throw ConfigError(
        "net.shares = \"links\": there is no [[link]] for shares to follow; add them (isthmus "
        "bench "
        "link measures), give --links FILE, or remove it");
  }
  if (!reduces(config)) {
    const std::shared_ptr<const Codec> codec = codec_of_means(config);
    throw ConfigError(fmt::format(
        "net.shares = \"links\": with outer.codec = {} and {} workers all is sent to all, and "
        "nobody owns a share; remove it, or set outer.exchange = \"reduce\"",
        codec == nullptr ? "its own" : codec->name(), config.workers()));
  }
  (void)owner_shares(config);
}

}  // namespace isthmus::app
