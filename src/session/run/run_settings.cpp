// SPDX-License-Identifier: Apache-2.0
#include "session/run/run_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>

#include "isthmus/codec.h"
#include "sim/topology.h"
#include "transport/exchange/reduction.h"

namespace isthmus::app {

MethodInfo info_of(const std::string& method) {
  const std::vector<MethodInfo> known = methods();
  return *std::ranges::find(known, method, &MethodInfo::name);
}

bool goes_by_arrival(const Config& config) {
  const std::vector<MethodInfo> known = methods();
  return std::ranges::any_of(known, [&](const MethodInfo& method) {
    return method.name == config.method && method.by_arrival;
  });
}

std::uint64_t retained_bytes(const Config& config) {
  if (!info_of(config.method).shared_anchors) return 0;
  return static_cast<std::uint64_t>(config.net.heal_bytes.value_or(0));
}

bool forward_only(const Config& config) {
  const std::vector<MethodInfo> known = methods();
  return std::ranges::any_of(known, [&](const MethodInfo& method) {
    return method.name == config.method && method.forward_only;
  });
}

bool takes_adam_moments(const Config& config) {
  return config.method == "1bit-adam" || config.method == "01-adam";
}

bool takes_gradients(const Config& config) {
  return config.method == "ddp" || takes_adam_moments(config);
}

double surrogate_byte_scale(const Config& config, std::int64_t values) {
  return config.surrogate && !forward_only(config)
             ? config.surrogate->params / static_cast<double>(values)
             : 1.0;
}

bool by_default(const Config& config, const std::string& key) {
  const auto origin = config.origins.find(key);
  return origin == config.origins.end() || origin->second.text == "default";
}

std::uint64_t run_key(std::uint64_t seed, Stream stream) {
  const std::array<std::uint32_t, 4> words = Rng(seed, stream).words(0);
  return std::uint64_t{words[1]} << 32 | words[0];
}

Duration round_patience(const Config& config, bool simulated) {
  return simulated && by_default(config, "net.patience") ? Duration::max() : config.outer.patience;
}

std::vector<std::string> site_names(const Config& config) {
  std::vector<std::string> names;
  for (const SiteConfig& site : config.sites) {
    names.push_back(site.name);
  }
  return names;
}

std::size_t chunk_bytes(const Config& config) {
  return std::min(static_cast<std::size_t>(config.net.chunk), kMaxPartBytes);
}

std::vector<std::uint32_t> site_groups(const Config& config) {
  return config.net.reduction == "groups" ? named_groups(config) : std::vector<std::uint32_t>();
}

std::vector<std::uint32_t> named_groups(const Config& config) {
  std::vector<std::uint32_t> groups;
  if (std::ranges::all_of(config.sites, [](const auto& site) { return site.group.empty(); })) {
    return groups;
  }
  for (std::size_t i = 0; i < config.sites.size(); ++i) {
    const std::string& name = config.sites[i].group;
    std::size_t first = i;  // a group is known by its first site
    for (std::size_t j = 0; j < i && !name.empty() && first == i; ++j) {
      if (config.sites[j].group == name) first = j;
    }
    groups.push_back(static_cast<std::uint32_t>(first));
  }
  return groups;
}

bool has_traces(const Config& config) {
  return std::ranges::any_of(config.links, [](const auto& link) { return !link.trace.empty(); });
}

void check_links(const Config& config) { (void)link_matrix(config.links, site_names(config)); }

bool declares_step_time(const Config& config) {
  bool every_site = true;
  for (const SiteConfig& site : config.sites) {
    every_site = every_site && site.compute_flops > 0;
  }
  return config.surrogate || config.sim.step_time > Duration{0} || every_site;
}

std::string codec_warning(const Config& config) {
  constexpr double kCoarse = 2.75;  // bits a value, scales included
  if (config.outer.codec.empty()) {
    return {};  // a method's own codec suits it
  }
  const std::unique_ptr<const Codec> codec = make_codec(config.outer.codec);
  const double bits =
      8 * static_cast<double>(codec->encoded_bytes(kTileValues)) / static_cast<double>(kTileValues);
  if (codec->error_feedback() || bits > kCoarse) {
    return {};
  }
  return fmt::format(
      "outer.codec = \"{0}\": at {1:.3g} bits a value much is lost in every exchange, and nothing "
      "brings it back; \"{0}:ef\" keeps it for the next one, at 4 bytes a parameter",
      config.outer.codec, bits);
}

}  // namespace isthmus::app
