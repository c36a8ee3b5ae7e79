// SPDX-License-Identifier: Apache-2.0
// Rules of [[site]].
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "config/check/config_check.h"

namespace isthmus::config {
namespace {

void check_paces(std::span<const SiteConfig> sites, CheckContext& check) {
  const MethodInfo* info = check.method;
  if (check.sites().places.empty() || info == nullptr) {
    return;
  }
  const auto full_pace = [](const SiteConfig& site) { return site.pace == 1; };
  for (std::size_t i = 0; i < check.sites().places.size(); ++i) {
    if (!full_pace(sites[i]) && !info->takes("H")) {
      check.refuse_at("E-CONFLICT", check.sites().places[i],
                      fmt::format("site.pace = {}: method '{}' has no windows of outer.H steps to "
                                  "take fewer in",
                                  sites[i].pace, info->name),
                      "remove it, or choose a method with outer.H");
    } else if (info->takes("H") && sites[i].pace * static_cast<double>(check.config.outer.H) < 1) {
      check.refuse_at("E-RANGE", check.sites().places[i],
                      fmt::format("site.pace = {}: not one step in each window of outer.H = {}",
                                  sites[i].pace, check.config.outer.H),
                      "raise pace or H");
    }
  }
  if (info->takes("H") && std::ranges::none_of(sites, full_pace)) {
    check.refuse_at("E-CONFLICT", check.sites().places.front(),
                    "no site has pace = 1: the run's steps are those of the fastest site");
  }
}

}  // namespace

void validate_sites(std::span<const SiteConfig> sites, CheckContext& check) {
  const std::vector<Place>& places = check.sites().places;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < sites.size(); ++i) {
    const std::string& name = sites[i].name;
    const bool from_file = i < places.size();
    if (from_file && !is_plain_name(name)) {
      check.refuse_at(name.empty() ? "E-KEY-MISSING" : "E-VALUE", places[i],
                      name.empty() ? "[[site]] without a 'name'"
                                   : fmt::format("site.name = \"{}\": must be 1 to 64 letters, "
                                                 "digits, '-', '_' or '.'",
                                                 name));
    } else if (std::ranges::find(names, name) != names.end()) {
      check.refuse_at("E-CONFLICT", places[i], fmt::format("two sites are named '{}'", name));
    }
    names.push_back(name);
  }
  check_paces(sites, check);
  constexpr std::size_t kMostSites = 4096;
  if (names.size() > kMostSites) {
    check.refuse_at("E-RANGE", places.front(), fmt::format("more than {} sites", kMostSites));
  }
}

}  // namespace isthmus::config
