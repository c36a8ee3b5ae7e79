// SPDX-License-Identifier: Apache-2.0
#include "sim/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "isthmus/errors.h"

namespace isthmus {
namespace {

bool covers(const std::string& pattern, const std::string& site) {
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

/// The entry that joins two sites, and whether it names them in this order; null: none does.
struct Joining {
  const LinkConfig* entry = nullptr;
  bool forward = true;
};
Joining entry_between(const std::vector<LinkConfig>& links, const std::string& one,
                      const std::string& other) {
  Joining best;
  for (const LinkConfig& link : links) {
    const bool forward = covers(link.a, one) && covers(link.b, other);
    const bool backward = covers(link.a, other) && covers(link.b, one);
    if (!forward && !backward) continue;
    if (best.entry != nullptr && names_given(link) < names_given(*best.entry)) continue;
    best = {&link, forward};
  }
  return best;
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
      const Joining joining = entry_between(links, sites[i], sites[j]);
      if (joining.entry == nullptr) {
        throw ConfigError(fmt::format(
            "no [[link]] joins '{}' and '{}': add one, or one with a = \"*\", b = \"*\"", sites[i],
            sites[j]));
      }
      matrix[i * count + j] = directed_link(*joining.entry, joining.forward);
      matrix[j * count + i] = directed_link(*joining.entry, !joining.forward);
    }
  }
  return matrix;
}

std::map<std::pair<int, int>, RateProfile> link_traces(const std::vector<LinkConfig>& links,
                                                       const std::vector<std::string>& sites,
                                                       Duration begun) {
  struct Directions {
    RateProfile up, down;
  };
  std::map<std::filesystem::path, Directions> files;  // all pairs share the steps of a file
  std::map<std::pair<int, int>, RateProfile> traces;
  for (std::size_t i = 0; i < sites.size(); ++i) {
    for (std::size_t j = i + 1; j < sites.size(); ++j) {
      const Joining joining = entry_between(links, sites[i], sites[j]);
      if (joining.entry == nullptr || joining.entry->trace.empty()) continue;
      const std::filesystem::path& file = joining.entry->trace;
      auto found = files.find(file);
      if (found == files.end()) {
        const LinkTrace trace = read_link_trace(file);
        found = files
                    .emplace(file, Directions{RateProfile::of_trace(trace, true, begun),
                                              RateProfile::of_trace(trace, false, begun)})
                    .first;
      }
      const auto& [up, down] = found->second;
      const auto from = static_cast<int>(i);
      const auto to = static_cast<int>(j);
      traces.emplace(std::pair(from, to), joining.forward ? up : down);
      traces.emplace(std::pair(to, from), joining.forward ? down : up);
    }
  }
  return traces;
}

std::vector<DirectedLink> at_highest_rates(std::vector<DirectedLink> links,
                                           const std::map<std::pair<int, int>, RateProfile>& traces,
                                           std::size_t sites) {
  for (const auto& [pair, profile] : traces) {
    const auto from = static_cast<std::size_t>(pair.first);
    links.at(from * sites + static_cast<std::size_t>(pair.second)).bits_per_s = profile.highest();
  }
  return links;
}

}  // namespace isthmus
