// SPDX-License-Identifier: Apache-2.0
#include "transport/exchange/reachability_reports.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>

namespace isthmus {

void ReachabilityReports::note(WorkerId from, WorkerId to, const std::string& what, TimePoint now) {
  Report& report = reports_.try_emplace({from, to}, Report{now, what, true}).first->second;
  if (report.settled) report = {now, what, false};
  if (report.what.empty()) report.what = what;
}

bool ReachabilityReports::open(WorkerId from, WorkerId to) const {
  const auto found = reports_.find({from, to});
  return found != reports_.end() && !found->second.settled;
}

void ReachabilityReports::gone(WorkerId member) {
  for (auto& [pair, report] : reports_) {
    if (pair.first == member || pair.second == member) report.settled = true;
  }
}

TimePoint ReachabilityReports::due() const {
  TimePoint first = kNever;
  for (const auto& [pair, report] : reports_) {
    if (!report.settled) first = std::min(first, report.seen + kGather);
  }
  return first;
}

/// The number of other members with whom `member` has a broken pair that may be its fault, in
/// either direction.
int ReachabilityReports::peers_of(WorkerId member) const {
  std::set<WorkerId> peers;
  for (const auto& [pair, report] : reports_) {
    if (report.blamed.value_or(member) != member) continue;
    if (pair.first == member) peers.insert(pair.second);
    if (pair.second == member) peers.insert(pair.first);
  }
  return static_cast<int>(peers.size());
}

void ReachabilityReports::blame(WorkerId member) {
  for (auto& [pair, report] : reports_) {
    const bool has_it = pair.first == member || pair.second == member;
    if (has_it && !report.blamed) report.blamed = member;
  }
}

/// Whether there are several others, and its values reach none of them.
bool ReachabilityReports::reaches_nobody(WorkerId member, const std::set<WorkerId>& live) const {
  int others = 0;
  for (const WorkerId other : live) {
    if (other == member) continue;
    if (!open(member, other)) return false;
    ++others;
  }
  return others >= 2;
}

std::vector<ReachabilityReports::Gone> ReachabilityReports::settle(TimePoint now,
                                                                   WorkerId coordinator,
                                                                   const std::set<WorkerId>& live) {
  std::vector<Gone> gone;
  if (now < due()) return gone;
  std::erase_if(reports_, [&](const auto& each) { return now - each.second.seen >= kRemember; });
  // All that have come by now: the later ones tell of the first.
  std::vector<std::pair<WorkerId, WorkerId>> open_ones;
  for (const auto& [pair, report] : reports_) {
    if (!report.settled) open_ones.push_back(pair);
  }
  const bool only_coordinator = live.contains(coordinator) && reaches_nobody(coordinator, live);
  const auto common = [&](const std::pair<WorkerId, WorkerId>& pair) {
    return std::max(peers_of(pair.first), peers_of(pair.second));
  };
  std::ranges::stable_sort(open_ones, std::greater<>(), common);
  std::set<WorkerId> staying = live;
  for (const auto& pair : open_ones) {
    const auto& [from, to] = pair;
    Report& report = reports_.at(pair);
    report.settled = true;
    if (!staying.contains(from) || !staying.contains(to)) continue;
    const int of_from = peers_of(from), of_to = peers_of(to);
    WorkerId who = of_to > of_from ? to : from;
    if (only_coordinator) who = coordinator;
    if (who == coordinator && !only_coordinator) who = from == who ? to : from;
    if (who == from ? of_from > of_to : of_to > of_from) blame(who);
    const std::string words =
        who == from ? fmt::format("its values do not get through to worker {}", to.value())
                    : fmt::format("values of worker {} do not get through to it", from.value());
    gone.push_back({who, report.what.empty() ? words : words + ": " + report.what});
    if (only_coordinator) break;
    staying.erase(who);
  }
  if (only_coordinator) {
    for (auto& [pair, report] : reports_) report.settled = true;
  }
  return gone;
}

}  // namespace isthmus
