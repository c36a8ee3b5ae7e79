// SPDX-License-Identifier: Apache-2.0
// Members of one simulated world, connected by links with durations and, on request, faults. Each
// ordered pair has one directed link, first in, first out.
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

/// The round of a frame, for the timeline.
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
  /// and outlives the network and its endpoints. Worker r's tasks are the world's group r until a
  /// restart: a crash stops that group with RankCrashed. THROWS: ConfigError for links and faults
  /// out of range.
  SimNetwork(SimWorld& world, int members, const std::vector<DirectedLink>& links,
             NetworkOptions options = {});
  ~SimNetwork();
  SimNetwork(const SimNetwork&) = delete;
  SimNetwork& operator=(const SimNetwork&) = delete;

  /// One endpoint a member; each one can be destroyed, and so closed, separately.
  [[nodiscard]] std::vector<std::unique_ptr<Transport>> endpoints();

  /// Ends the process of `rank` now, like a planned crash. No effect if it has ended.
  void crash(WorkerId rank);
  /// A new process replaces the ended process of `rank`; its tasks are the world's group `group`.
  /// RETURNS: its endpoint. It and each other live member are told of one another (kPeerBack) a
  /// round trip later, or when the partitions between them are over; before that no frame passes
  /// between them.
  [[nodiscard]] std::unique_ptr<Transport> restart(WorkerId rank, int group);

  /// Bytes sent so far, [from][to], counted as on the modelled link.
  [[nodiscard]] const std::vector<std::vector<std::uint64_t>>& traffic() const;
  [[nodiscard]] const FaultCounts& fault_counts() const;

  class State;

 private:
  std::shared_ptr<State> state_;  // co-owned by endpoints and frames in flight
};

/// `members` with equal links between all.
[[nodiscard]] std::vector<DirectedLink> uniform_links(int members, const DirectedLink& link);

}  // namespace isthmus
