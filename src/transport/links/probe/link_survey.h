// SPDX-License-Identifier: Apache-2.0
// All links of a group, measured one pair at a time. The order of the pairs follows from their
// number, so no coordination is needed: the first member of a pair begins when it has received the
// results of all earlier pairs, and sends its own to all. So no two pairs measure at once, and at
// the end every member has all results.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "isthmus/runtime.h"
#include "transport/links/link_gauge.h"
#include "transport/links/probe/link_measurement.h"
#include "transport/links/probe/link_probe.h"
#include "transport/wire/transport.h"

namespace isthmus {

/// Every pair (a, b) with a < b, once. As rounds of a tournament: neighbours in the order share few
/// members, so a member's turns are spread.
[[nodiscard]] std::vector<std::pair<WorkerId, WorkerId>> survey_pairs(int members);
/// The duration for links with short round trips.
[[nodiscard]] Duration survey_time(int members, const ProbePlan& plan);

struct SurveyOptions {
  ProbePlan plan = {};                               // equal at all members
  std::string name = {};                             // of this member, for people
  std::vector<std::string> names = {};               // of all; empty: as they send them
  LinkGauge* gauge = nullptr;                        // the transport's, if it has one; borrowed
  Duration patience = std::chrono::seconds(30);      // timeout for the first message of each member
  std::function<void(const std::string&)> say = {};  // progress in words
  /// A pair was measured, by any member; `done` of `all` pairs.
  std::function<void(const PairMeasurement&, std::size_t done, std::size_t all)> on_result = {};
  std::function<void()> check = {};  // called now and then; throws to end it
};

struct Survey {
  std::vector<std::string> names;      // as sent by the members
  std::vector<PairMeasurement> pairs;  // in the order of `survey_pairs`
};

/// Blocks until all pairs are measured. All members of the transport call it, and do nothing else.
/// Borrows both. THROWS: PeerError naming a member that is lost, silent, has other options or
/// another version, or sends an invalid message; the others are told why.
[[nodiscard]] Survey survey_links(Transport& transport, Runtime& runtime,
                                  const SurveyOptions& options);

}  // namespace isthmus
