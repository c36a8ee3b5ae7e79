// SPDX-License-Identifier: Apache-2.0
// All links of a group, measured one pair at a time. The order of the pairs is a function of their
// number, so nobody has to be told: the first member of a pair begins when it has heard the results
// of all pairs before, and tells its own to everyone. So no two pairs measure at once, and in the
// end every member has everything.
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

/// Every pair (a, b) with a < b, once. Rounds of a tournament: neighbours in the order share few
/// members, so a member's turns are spread.
[[nodiscard]] std::vector<std::pair<WorkerId, WorkerId>> survey_pairs(int members);
/// How long it takes with links whose round trips are short.
[[nodiscard]] Duration survey_time(int members, const ProbePlan& plan);

struct SurveyOptions {
  ProbePlan plan = {};                               // alike at all members
  std::string name = {};                             // of this member, for people
  std::vector<std::string> names = {};               // of all; empty: as they say themselves
  LinkGauge* gauge = nullptr;                        // of the transport, where it has one; borrowed
  Duration patience = std::chrono::seconds(30);      // for the first word of each member
  std::function<void(const std::string&)> say = {};  // progress in words
  /// A pair has been measured, by whomever; how many of how many.
  std::function<void(const PairMeasurement&, std::size_t done, std::size_t all)> on_result = {};
  std::function<void()> check = {};  // asked now and then; throws to end it
};

struct Survey {
  std::vector<std::string> names;      // as the members say them
  std::vector<PairMeasurement> pairs;  // in the order of `survey_pairs`
};

/// Blocks until all pairs are measured. The transport's members all do this, and nothing else.
/// Borrows both. THROWS: PeerError naming who is gone, silent, of another mind or version, or sends
/// what cannot be; the others are told why.
[[nodiscard]] Survey survey_links(Transport& transport, Runtime& runtime,
                                  const SurveyOptions& options);

}  // namespace isthmus
