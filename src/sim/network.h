// SPDX-License-Identifier: Apache-2.0
// Members of one simulated world, joined by links that take time and, on request, by faults. Each
// ordered pair has its own directed link, first in, first out.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/events.h"
#include "sim/faults.h"
#include "sim/link.h"
#include "sim/rate_profile.h"
#include "sim/world.h"
#include "transport/wire/transport.h"

namespace isthmus {

/// What a frame is about, for the timeline.
struct FrameLabel {
  int fragment = -1;
  std::int64_t step = 0;
};

struct NetworkOptions {
  LinkOptions link;
  /// Line rates over time of single directed links, (from, to).
  std::map<std::pair<int, int>, RateProfile> profiles;
  FaultPlan faults;
  EventSink* events = nullptr;                         // borrowed; may be null
  std::function<FrameLabel(const FrameBytes&)> label;  // may be empty
};

class SimNetwork {
 public:
  /// `links`: members x members, row-major [from][to]; the diagonal is unused. `world` is borrowed
  /// and outlives the network and its endpoints. Worker r's tasks are the world's group r until it
  /// is restarted: a crash stops that group with RankCrashed. THROWS: ConfigError for links and
  /// faults out of range.
  SimNetwork(SimWorld& world, int members, const std::vector<DirectedLink>& links,
             NetworkOptions options = {});
  ~SimNetwork();
  SimNetwork(const SimNetwork&) = delete;
  SimNetwork& operator=(const SimNetwork&) = delete;

  /// One endpoint a member; each destroys, and so closes, on its own.
  [[nodiscard]] std::vector<std::unique_ptr<Transport>> endpoints();

  /// The process of `rank` ends now, as by a crash of the plan. Nothing where it has ended.
  void crash(WorkerId rank);
  /// A new process takes the place of that of `rank`, which has ended; its tasks are the world's
  /// group `group`. RETURNS: its endpoint. It and each other that stands are told of one another
  /// (kPeerBack) a round trip later, or when the partitions between them are over: until then
  /// nothing goes between them.
  [[nodiscard]] std::unique_ptr<Transport> restart(WorkerId rank, int group);

  /// Bytes sent so far, [from][to], as the modelled link counts them.
  [[nodiscard]] const std::vector<std::vector<std::uint64_t>>& traffic() const;
  [[nodiscard]] const FaultCounts& fault_counts() const;

  class State;

 private:
  std::shared_ptr<State> state_;  // co-owned by endpoints and frames in flight
};

/// `members` equal links between all.
[[nodiscard]] std::vector<DirectedLink> uniform_links(int members, const DirectedLink& link);

}  // namespace isthmus
