// SPDX-License-Identifier: Apache-2.0
// Rules of [net]: sites that must be present, groups, shares, training alone, deadlines, quiet
// hours.
#include <fmt/format.h>

#include <algorithm>

#include "config/check/config_check.h"
#include "config/load/config_load_defaults.h"
#include "config/schema/send_cap.h"
#include "isthmus/errors.h"

namespace isthmus::config {
namespace {

void check_groups(const NetConfig& net, CheckContext& check) {
  const MethodInfo* info = check.method;
  if (net.reduction != "groups" || info == nullptr) {
    return;
  }
  const std::string what = check.quoted("net.reduction");
  if (check.sites().places.empty() ||
      std::ranges::all_of(check.config.sites,
                          [](const SiteConfig& site) { return site.group.empty(); })) {
    check.refuse("E-KEY-MISSING", "net.reduction", fmt::format("{}: no [[site]] has a group", what),
                 "write group = \"eu\" to the sites that are near one another");
  }
  if (!info->takes("exchange") || check.config.outer.exchange == ReductionKind::kGather) {
    check.refuse(
        "E-CONFLICT", "net.reduction",
        fmt::format("{}: groups need a mean that one site computes for the others, and {}", what,
                    info->takes("exchange")
                        ? "outer.exchange = \"gather\" sends all to all"
                        : fmt::format("method '{}' sends all to all", info->name)),
        "remove it");
  }
  if (info->name == "1bit-adam" || info->name == "01-adam") {
    check.refuse(
        "E-CONFLICT", "net.reduction",
        fmt::format("{}: method '{}' keeps what each encoding has lost for the next one, which "
                    "a group's mean does not",
                    what, info->name),
        "remove it, or choose another method");
  }
}

/// Why a run of this configuration can only have even shares, and the remedy; empty: these keys
/// allow others.
std::pair<std::string, std::string> shares_obstacle(const Config& config, const MethodInfo& info) {
  if (!info.takes("exchange") || config.outer.exchange == ReductionKind::kGather) {
    return {fmt::format("shares need a mean that sites compute for one another, and {}",
                        info.takes("exchange")
                            ? "outer.exchange = \"gather\" sends all to all"
                            : fmt::format("method '{}' sends all to all", info.name)),
            "remove it"};
  }
  if (info.name == "1bit-adam" || info.name == "01-adam") {
    return {fmt::format("method '{}' keeps what each encoding of a mean has lost where it was "
                        "encoded, and would go on without it under other shares",
                        info.name),
            "remove it, or choose another method"};
  }
  if (config.net.reduction == "groups") {
    return {
        "in groups the links inside a group and those between groups carry unlike shares, for "
        "which there is no form",
        "remove it, or net.reduction = \"groups\""};
  }
  return {};
}

void check_shares(const NetConfig& net, CheckContext& check) {
  const MethodInfo* info = check.method;
  if (net.shares == "auto" || info == nullptr) {
    return;
  }
  const auto [why, remedy] = shares_obstacle(check.config, *info);
  if (!why.empty()) {
    check.refuse("E-CONFLICT", "net.shares", fmt::format("{}: {}", check.quoted("net.shares"), why),
                 remedy);
  }
}

void check_solo(const NetConfig& net, CheckContext& check) {
  const auto [why, remedy] = solo_obstacle(check.config, check.method);
  if (!check.given("net.max_solo_rounds") || net.max_solo_rounds == 0 || why.empty()) return;
  check.refuse(
      "E-CONFLICT", "net.max_solo_rounds",
      fmt::format("{}: a site that trains on alone takes its work along when it is found again, "
                  "and {}",
                  check.quoted("net.max_solo_rounds"), why),
      fmt::format("remove it, since such a site waits; or {}", remedy));
}

void check_deadline(const NetConfig& net, CheckContext& check) {
  const MethodInfo* info = check.method;
  if (!net.deadline || info == nullptr) {
    return;
  }
  const std::string what = check.quoted("net.deadline");
  if (!info->takes("carry") && info->name != "sparseloco") {
    check.refuse(
        "E-CONFLICT", "net.deadline",
        fmt::format("{}: method '{}' has no rule for what a site gave to a round that did not "
                    "count it",
                    what, info->name),
        "remove it, or choose a method with outer.carry");
  }
  const auto needs = std::max<std::int64_t>(net.min_sites.value_or(1),
                                            (2 * std::int64_t{check.config.workers()} + 2) / 3);
  if (needs >= check.config.workers()) {
    const bool few = check.config.workers() < 3;
    check.refuse(
        "E-CONFLICT", "net.deadline",
        fmt::format("{}: it passes once {} sites have begun a round, of {} with one that is late",
                    what, needs, check.config.workers()),
        few ? "remove it: with fewer than three sites all wait for each other"
            : "remove it, or set a smaller net.min_sites");
  }
}

}  // namespace

void validate_net(const NetConfig& net, CheckContext& check) {
  if (net.min_sites && *net.min_sites > check.config.workers()) {
    check.refuse("E-RANGE", "net.min_sites",
                 fmt::format("{}: more than the run's {} site{}", check.quoted("net.min_sites"),
                             check.config.workers(), check.config.workers() == 1 ? "" : "s"));
  }
  check_groups(net, check);
  check_shares(net, check);
  check_solo(net, check);
  check_deadline(net, check);
  for (const std::string& hours : net.quiet) {
    try {
      static_cast<void>(parse_quiet_hours(hours));
    } catch (const ConfigError& error) {
      check.refuse("E-VALUE", "net.quiet", fmt::format("'net.quiet': {}", error.what()),
                   "write \"08:00-18:00 10Mbit/s\"");
    }
  }
}

}  // namespace isthmus::config
