// SPDX-License-Identifier: Apache-2.0
// The presence of peers: joins, losses, leaves and returns as new processes. The owner is told of
// each change once, and learns why a peer cannot join. Part of LinkEngine.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/links/link_connections.h"
#include "transport/links/link_peers.h"
#include "transport/links/link_receiving.h"
#include "transport/links/link_sending.h"

namespace isthmus {

class LinkPresence {
 public:
  LinkPresence(LinkPeers& all, LinkConnections& connections, LinkSending& sending,
               LinkReceiving& receiving)
      : all_(all), connections_(connections), sending_(sending), receiving_(receiving) {}

  /// The peer has joined if all its connections are open; where peers may rejoin, in both
  /// directions.
  void settle_joined(WorkerId rank);
  /// The peer has joined. The owner is told if it had continued without the peer.
  void stand(WorkerId rank);
  /// The peer's current process is lost: its connections end, and the owner is told.
  void lose(WorkerId rank, LinkEvent::Kind kind, const std::string& why,
            LossCause cause = LossCause::kGone);
  /// A leaving peer is lost once all its frames have arrived.
  void settle_leave(WorkerId rank);
  /// A new process is this member from now on; its connections are dialled.
  void begin_anew(WorkerId rank);
  /// As LinkEngine::begin_without_absent.
  std::vector<WorkerId> begin_without_absent();

  /// Records why the peer cannot join; the first cause counts.
  void cannot_join(WorkerId rank, RefusedField field, const std::string& why);
  void may_join_again(WorkerId rank);
  [[nodiscard]] bool have_joined(std::span<const WorkerId> these) const;
  /// The first cause why one of these peers cannot join.
  [[nodiscard]] std::optional<JoinError> join_error(std::span<const WorkerId> these) const;
  [[nodiscard]] bool has_join_error(WorkerId rank) const {
    return join_error(std::span(&rank, 1)).has_value();
  }
  /// The peers of these that have not joined, with what is known of them, for people; empty: all
  /// have.
  [[nodiscard]] std::string describe_missing(std::span<const WorkerId> these,
                                             std::span<const std::string> endpoints) const;
  /// After `close`: every living peer has received all frames.
  [[nodiscard]] bool all_told() const;

 private:
  LinkPeers& all_;
  LinkConnections& connections_;
  LinkSending& sending_;
  LinkReceiving& receiving_;
  std::vector<JoinError> join_errors_;  // at most one a peer, in the order they came
};

}  // namespace isthmus
