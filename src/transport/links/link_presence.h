// SPDX-License-Identifier: Apache-2.0
// Which peers are here: they join, are lost, leave, come back as new processes. The owner hears of
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

  /// The peer has joined if all its connections stand; where peers may come back, in both
  /// directions.
  void settle_joined(WorkerId rank);
  /// The peer has joined. The owner hears of it if it did without the peer.
  void stand(WorkerId rank);
  /// The present process of the peer is gone: connections end, and the owner hears of it.
  void lose(WorkerId rank, LinkEvent::Kind kind, const std::string& why,
            LossCause cause = LossCause::kGone);
  /// A peer that leaves is lost once everything that it has sent is here.
  void settle_leave(WorkerId rank);
  /// Another process is this member from now on; its connections are dialled.
  void begin_anew(WorkerId rank);
  /// As LinkEngine::begin_without_absent.
  std::vector<WorkerId> begin_without_absent();

  /// Records why the peer cannot join; the first cause counts.
  void cannot_join(WorkerId rank, RefusedField field, const std::string& why);
  void may_join_again(WorkerId rank);
  [[nodiscard]] bool have_joined(std::span<const WorkerId> these) const;
  /// Why one of these cannot join: the first cause.
  [[nodiscard]] std::optional<JoinError> join_error(std::span<const WorkerId> these) const;
  [[nodiscard]] bool has_join_error(WorkerId rank) const {
    return join_error(std::span(&rank, 1)).has_value();
  }
  /// Who of these has not joined and what is known of them, for people; empty: all have.
  [[nodiscard]] std::string describe_missing(std::span<const WorkerId> these,
                                             std::span<const std::string> endpoints) const;
  /// After `close`: every living peer has all frames.
  [[nodiscard]] bool all_told() const;

 private:
  LinkPeers& all_;
  LinkConnections& connections_;
  LinkSending& sending_;
  LinkReceiving& receiving_;
  std::vector<JoinError> join_errors_;  // at most one a peer, in the order they came
};

}  // namespace isthmus
