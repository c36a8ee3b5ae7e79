// SPDX-License-Identifier: Apache-2.0
#include "sim/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "isthmus/errors.h"

namespace isthmus {
namespace {

bool means(const std::string& pattern, const std::string& site) {
  return pattern == "*" || pattern == site;
}

int names_given(const LinkConfig& link) {
  return (link.a != "*" ? 1 : 0) + (link.b != "*" ? 1 : 0);
}

void require_known(const std::string& name, const std::vector<std::string>& sites) {
  if (name == "*" || std::find(sites.begin(), sites.end(), name) != sites.end()) return;
  throw ConfigError(fmt::format("[[link]] names site '{}', which does not exist; sites: {}", name,
                                fmt::join(sites, ", ")));
}

}  // namespace

DirectedLink directed_link(const LinkConfig& config, bool a_to_b) {
  const std::string label = fmt::format("[[link]] {} - {}", config.a, config.b);
  if (config.congestion != "bbr" && config.congestion != "cubic") {
    throw ConfigError(
        fmt::format("{}: congestion = '{}': must be 'bbr' or 'cubic'", label, config.congestion));
  }
  const double rate = a_to_b ? config.bits_per_s_up : config.bits_per_s_down;
  if (!(rate >= 0 && rate <= 1e15)) {
    throw ConfigError(fmt::format("{}: rate = {} bit/s: must be in [0, 1e15]", label, rate));
  }
  const DirectedLink link{
      .bits_per_s = std::llround(rate),
      .one_way = config.rtt / 2,
      .jitter = config.jitter,
      .loss = config.loss,
      .streams = config.streams,
      .congestion = config.congestion == "bbr" ? Congestion::kBbr : Congestion::kCubic};
  check_link(link, label);
  return link;
}

std::vector<DirectedLink> link_matrix(const std::vector<LinkConfig>& links,
                                      const std::vector<std::string>& sites) {
  for (const LinkConfig& link : links) {
    require_known(link.a, sites);
    require_known(link.b, sites);
  }
  const std::size_t count = sites.size();
  std::vector<DirectedLink> matrix(count * count);
  if (links.empty()) return matrix;
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t j = i + 1; j < count; ++j) {
      const LinkConfig* best = nullptr;
      bool i_is_a = true;
      for (const LinkConfig& link : links) {
        const bool forward = means(link.a, sites[i]) && means(link.b, sites[j]);
        const bool backward = means(link.a, sites[j]) && means(link.b, sites[i]);
        if (!forward && !backward) continue;
        if (best != nullptr && names_given(link) < names_given(*best)) continue;
        best = &link;
        i_is_a = forward;
      }
      if (best == nullptr) {
        throw ConfigError(fmt::format(
            "no [[link]] joins '{}' and '{}': add one, or one with a = \"*\", b = \"*\"", sites[i],
            sites[j]));
      }
      matrix[i * count + j] = directed_link(*best, i_is_a);
      matrix[j * count + i] = directed_link(*best, !i_is_a);
    }
  }
  return matrix;
}

}  // namespace isthmus
