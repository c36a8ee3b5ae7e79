// SPDX-License-Identifier: Apache-2.0
#include "transport/exchange/round_routes.h"

#include <algorithm>

#include "core/base/check.h"

namespace isthmus {
namespace {

/// The owners' shares: nothing for members that do not take part.
std::vector<std::uint32_t> shares_of(const RoundPlace& place) {
  std::vector<std::uint32_t> shares = place.shares;
  if (std::ranges::find(place.live, true) == place.live.end()) return shares;
  if (shares.empty()) shares.assign(place.live.size(), 1);
  for (std::size_t m = 0; m < shares.size(); ++m) {
    if (!place.live[m]) shares[m] = 0;
  }
  if (std::ranges::find_if(shares, [](std::uint32_t s) { return s > 0; }) == shares.end()) {
    std::ranges::copy(place.live, shares.begin());  // all that had a share are gone
  }
  return shares;
}

}  // namespace

RoundRoutes::RoundRoutes(const RoundPlace& place, const Codec& codec, std::size_t values,
                         ReductionKind kind)
    : self_(place.self), members_(place.members), live_(place.live) {
  const std::vector<std::uint32_t> shares = shares_of(place);
  plan_ = make_reduction_plan(codec, values, members_, kind, shares, place.chunk_bytes);
  if (place.groups.empty() || !takes_part(index(self_))) return;
  ISTHMUS_CHECK(place.groups.size() == static_cast<std::size_t>(members_), place.groups.size(),
                members_);
  add_groups(plan_, place.groups, live_, shares);
  if (!plan_.two_levels()) return;
  group_of_.assign(static_cast<std::size_t>(members_), plan_.groups.size());
  for (std::size_t g = 0; g < plan_.groups.size(); ++g) {
    for (const WorkerId member : plan_.groups[g]) group_of_[index(member)] = g;
  }
}

WorkerId RoundRoutes::gatherer(std::size_t k) const {
  return plan_.two_levels() ? plan_.collector(k, own_group()) : plan_.parts[k].owner;
}

bool RoundRoutes::gathers(std::size_t k) const {
  return plan_.all_to_all() || gatherer(k) == self_;
}

bool RoundRoutes::feeds(std::size_t member) const {
  return takes_part(member) && (!plan_.two_levels() || group_of_[member] == own_group());
}

bool RoundRoutes::contribution_goes(std::size_t k, WorkerId to) const {
  return plan_.all_to_all() || gatherer(k) == to;
}

WorkerId RoundRoutes::source(std::size_t k) const {
  return gatherer(k) == self_ ? plan_.parts[k].owner : gatherer(k);
}

std::vector<WorkerId> RoundRoutes::receivers(std::size_t k) const {
  std::vector<WorkerId> ranks;
  for (int hop = 1; hop < members_; ++hop) {
    const WorkerId to((self_.value() + hop) % members_);
    const bool collects = owns(k) && plan_.two_levels() && takes_part(index(to)) &&
                          plan_.collector(k, group_of_[index(to)]) == to;
    if (feeds(index(to)) || collects) ranks.push_back(to);
  }
  return ranks;
}

std::size_t RoundRoutes::group_of(WorkerId member) const {
  return group_of_.empty() ? 0 : group_of_[index(member)];
}

bool RoundRoutes::collects_for_own_part(std::size_t k, WorkerId member) const {
  return plan_.two_levels() && owns(k) && takes_part(index(member)) && !feeds(index(member)) &&
         plan_.collector(k, group_of_[index(member)]) == member;
}

bool RoundRoutes::stays_in_group(std::size_t k) const {
  return plan_.two_levels() && feeds(index(plan_.parts[k].owner));
}

}  // namespace isthmus
