// SPDX-License-Identifier: Apache-2.0
// Liveness of peers: a peer is lost when it is silent, when its connections break and do not
// reopen, when nothing sent to it gets through, or when it takes none of the frames that arrived.
// Part of LinkEngine.
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
  /// The timeout of the peer's broken connections; kNever: none broke.
  [[nodiscard]] TimePoint gone_at(WorkerId rank) const;
  /// As LinkEngine::moved. `held_back`: frames wait for the send budget.
  void moved(WorkerId rank, Movement movement, bool held_back, TimePoint now);
  /// This process was suspended until now: that time counts against no peer.
  void slept(WorkerId rank, TimePoint now);
  /// The peer has acknowledged frames.
  void acknowledged(WorkerId rank);
  /// Other connections have replaced those dialled to the peer.
  void rerouted(WorkerId rank, TimePoint now);
  [[nodiscard]] LinkSigns signs(WorkerId rank) const;

 private:
  LinkPeers& all_;
  LinkPresence& presence_;
};

}  // namespace isthmus
