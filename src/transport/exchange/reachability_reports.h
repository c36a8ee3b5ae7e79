// SPDX-License-Identifier: Apache-2.0
// Reports of members whose values do not reach a peer, and the decision which member to exclude. If
// a network drops full-size packets, each end sees a peer that is alive but reads nothing. One
// report does not tell which end is at fault; several reports do, by the member that they have in
// common. The coordinator collects reports for a moment before it excludes a member. Pure; one
// task.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "isthmus/types.h"

namespace isthmus {

class ReachabilityReports {
 public:
  /// Time to collect after the first report of a pair: links check at each heartbeat, and by then
  /// values to all peers are in flight.
  static constexpr Duration kGather = std::chrono::seconds(3);
  /// A decision counts this long for later reports: one end of a pair may have been excluded before
  /// a third member's report tells which end was at fault.
  static constexpr Duration kRemember = std::chrono::hours(1);

  struct Gone {
    WorkerId who;
    std::string why;
  };

  /// Values of `from` do not reach `to`. `what`: the cause in words, as far as known. A repeated
  /// report of an unsettled pair only adds a missing cause.
  void note(WorkerId from, WorkerId to, const std::string& what, TimePoint now);
  /// Whether a report that values of `from` do not reach `to` is not settled yet.
  [[nodiscard]] bool open(WorkerId from, WorkerId to) const;
  /// The member has left, for whatever reason: reports about this process are settled.
  void gone(WorkerId member);
  /// The time of the next useful `settle`; kNever: no open reports.
  [[nodiscard]] TimePoint due() const;
  /// Before `due` nothing happens. Once one report has been collected long enough, all open reports
  /// are settled, the newer ones too. RETURNS: the members to exclude: of each pair the member that
  /// is in more reported pairs; on a tie the reporter, whose packets vanish. The coordinator stays,
  /// unless there are several other members and its values reach none of them; then only the
  /// coordinator is returned. `live`: the current members, including the coordinator if it is one.
  [[nodiscard]] std::vector<Gone> settle(TimePoint now, WorkerId coordinator,
                                         const std::set<WorkerId>& live);

 private:
  struct Report {
    TimePoint seen;
    std::string what;
    bool settled = false;
    std::optional<WorkerId> blamed = {};  // by other reports: which of the two
  };
  [[nodiscard]] int peers_of(WorkerId member) const;
  void blame(WorkerId member);
  [[nodiscard]] bool reaches_nobody(WorkerId member, const std::set<WorkerId>& live) const;

  std::map<std::pair<WorkerId, WorkerId>, Report> reports_;  // by reporter and unreached peer
};

}  // namespace isthmus
