// SPDX-License-Identifier: Apache-2.0
// Who cannot get values to whom, as members report it, and who of them is to go. Where something
// drops packets of full size, each of the two ends sees a peer that is heard and takes nothing; so
// one report does not tell whose way is at fault, but several do: the member that they have in
// common. Whoever coordinates gathers them for a moment before it leaves anybody out. Pure; one
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
  /// From the first report of a pair: a member's links look at each heartbeat, and values to all
  /// its peers are on their way by then.
  static constexpr Duration kGather = std::chrono::seconds(3);
  /// What was found counts for so long when others report: one end of a pair may have been left out
  /// when a third member finds out which of the two it was.
  static constexpr Duration kRemember = std::chrono::hours(1);

  struct Gone {
    WorkerId who;
    std::string why;
  };

  /// `from` gets no values to `to`. `what`: in words, as far as is known. Said again while it is
  /// not settled, it changes nothing but words that were missing.
  void note(WorkerId from, WorkerId to, const std::string& what, TimePoint now);
  /// Whether it is being settled who goes of these, as the values of `from` do not get to `to`.
  [[nodiscard]] bool open(WorkerId from, WorkerId to) const;
  /// The member has gone, for whatever reason: what was reported of this process is settled.
  void gone(WorkerId member);
  /// When `settle` has something to say; kNever: nothing was reported.
  [[nodiscard]] TimePoint due() const;
  /// Who is to go of what has been reported for long enough: of each pair the one that more pairs
  /// have in common, and where that tells nothing who reported it, whose packets vanish. The
  /// coordinator stays, unless there are several others and its own values reach none of them: then
  /// it is who goes, and nobody else.
  /// `live`: who takes part, the coordinator too where it is a member.
  [[nodiscard]] std::vector<Gone> settle(TimePoint now, WorkerId coordinator,
                                         const std::set<WorkerId>& live);

 private:
  struct Report {
    TimePoint seen;
    std::string what;
    bool settled = false;
    std::optional<WorkerId> blamed = {};  // once others have told which of the two it is
  };
  [[nodiscard]] int peers_of(WorkerId member) const;
  void blame(WorkerId member);
  [[nodiscard]] bool reaches_nobody(WorkerId member, const std::set<WorkerId>& live) const;

  std::map<std::pair<WorkerId, WorkerId>, Report> reports_;  // by who reports and about whom
};

}  // namespace isthmus
