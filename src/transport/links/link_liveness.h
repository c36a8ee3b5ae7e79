// SPDX-License-Identifier: Apache-2.0
// Which peers are alive: a peer is lost when it is silent, when its connections break and do not
// come back, when nothing sent to it gets through, or when it takes nothing of what is there. Part
// of LinkEngine.
#pragma once

#include "transport/links/link_peers.h"
#include "transport/links/link_presence.h"
#include "transport/links/link_progress.h"
#include "transport/links/link_way.h"

namespace isthmus {

class LinkLiveness {
 public:
  LinkLiveness(LinkPeers& all, LinkPresence& presence) : all_(all), presence_(presence) {}

  /// Loses the peer if it is not alive any more.
  void check(WorkerId rank, TimePoint now);
  /// When broken connections to the peer have had their time to come back; kNever: none broke.
  [[nodiscard]] TimePoint gone_at(WorkerId rank) const;
  /// As LinkEngine::moved. `held_back`: something waits for the budget.
  void moved(WorkerId rank, Movement movement, bool held_back, TimePoint now);
  /// This process has been asleep until now: that time counts against nobody.
  void slept(WorkerId rank, TimePoint now);
  /// The peer has acknowledged frames.
  void acknowledged(WorkerId rank);
  /// Other connections have taken the place of those dialled to the peer.
  void rerouted(WorkerId rank, TimePoint now);
  [[nodiscard]] LinkSigns signs(WorkerId rank) const;

 private:
  LinkPeers& all_;
  LinkPresence& presence_;
};

}  // namespace isthmus
