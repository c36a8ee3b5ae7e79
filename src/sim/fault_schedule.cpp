// SPDX-License-Identifier: Apache-2.0
#include "sim/fault_schedule.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

namespace isthmus {
namespace {

bool means(const std::string& pattern, const std::string& site) {
  return pattern == "*" || pattern == site;
}

bool joins(const FaultConfig& fault, const std::string& a, const std::string& b) {
  return (means(fault.a, a) && means(fault.b, b)) || (means(fault.a, b) && means(fault.b, a));
}

bool stops_link(const FaultConfig& fault, const std::string& a, const std::string& b) {
  if (fault.kind == "pause") return fault.site == a || fault.site == b;
  return fault.kind == "cut" && joins(fault, a, b);
}

bool holds_at(const FaultConfig& fault, Duration time) {
  return fault.at <= time && time < fault.at + fault.lasts;
}

/// The faults that are not over at `begun`, and when one of them begins or ends, `begun` included.
struct Ahead {
  std::vector<FaultConfig> faults;
  std::set<Duration> changes;
};

template <typename Concerns>
Ahead ahead_of(const std::vector<FaultConfig>& faults, Duration begun, const Concerns& concerns) {
  Ahead ahead;
  for (const FaultConfig& fault : faults) {
    if (!concerns(fault) || fault.at + fault.lasts <= begun) continue;
    ahead.faults.push_back(fault);
    ahead.changes.insert({begun, std::max(begun, fault.at), fault.at + fault.lasts});
  }
  return ahead;
}

}  // namespace

std::map<std::pair<int, int>, RateProfile> fault_rates(
    const std::vector<FaultConfig>& faults, const std::vector<DirectedLink>& links,
    const std::vector<std::string>& sites, Duration begun,
    const std::map<std::pair<int, int>, RateProfile>& traces) {
  std::map<std::pair<int, int>, RateProfile> profiles = traces;
  for (std::size_t from = 0; from < sites.size(); ++from) {
    for (std::size_t to = 0; to < sites.size(); ++to) {
      const std::string& a = sites[from];
      const std::string& b = sites[to];
      const Ahead ahead = ahead_of(faults, begun, [&](const FaultConfig& fault) {
        return stops_link(fault, a, b) || (fault.kind == "rate" && joins(fault, a, b));
      });
      if (from == to || ahead.faults.empty()) continue;
      std::vector<RateProfile::Override> overrides;
      for (const Duration change : ahead.changes) {
        std::optional<std::int64_t> rate;  // that faults leave
        for (const FaultConfig& fault : ahead.faults) {
          if (!holds_at(fault, change)) continue;
          const std::int64_t own = stops_link(fault, a, b) ? 0 : std::llround(fault.bits_per_s);
          rate = std::min(rate.value_or(own), own);
        }
        overrides.push_back({TimePoint(change - begun), rate});
      }
      const std::pair pair(static_cast<int>(from), static_cast<int>(to));
      if (const auto trace = traces.find(pair); trace != traces.end()) {
        profiles.insert_or_assign(pair, trace->second.overridden(std::move(overrides)));
        continue;
      }
      std::vector<RateProfile::Step> steps;
      for (const RateProfile::Override& each : overrides) {
        const std::int64_t line = links[from * sites.size() + to].bits_per_s;
        steps.push_back({each.from, each.bits_per_s.value_or(line)});
      }
      profiles.emplace(pair, RateProfile(std::move(steps)));
    }
  }
  return profiles;
}

PaceProfile fault_pace(const std::vector<FaultConfig>& faults, const std::string& site,
                       Duration begun) {
  const Ahead ahead = ahead_of(faults, begun, [&](const FaultConfig& fault) {
    return (fault.kind == "pause" || fault.kind == "slow") && fault.site == site;
  });
  std::vector<PaceProfile::Step> steps;
  for (const Duration change : ahead.changes) {
    double pace = 1;
    for (const FaultConfig& fault : ahead.faults) {
      if (holds_at(fault, change)) pace = std::min(pace, fault.kind == "pause" ? 0 : fault.pace);
    }
    steps.push_back({TimePoint(change - begun), pace});
  }
  return PaceProfile(std::move(steps));
}

}  // namespace isthmus
