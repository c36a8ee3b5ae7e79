// SPDX-License-Identifier: Apache-2.0
// The connections that peers have dialled to this member: the peer and stream of each, and the
// messages that go back over them (acknowledgements, refusals). Part of LinkEngine.
#pragma once

#include <cstdint>
#include <map>

#include "transport/links/link_peers.h"

namespace isthmus {

class LinkConnections {
 public:
  struct Connection {
    WorkerId peer;
    std::uint32_t stream = 0;
    std::uint64_t received = 0;  // frames since the greeting
  };

  explicit LinkConnections(LinkPeers& all) : all_(all) {}

  /// RETURNS: null for a connection that has not greeted.
  [[nodiscard]] Connection* find(const ConnectionId& id);
  /// `id` carries this stream of the peer from now on, as the connection on which the peer was last
  /// heard; its count of frames begins at 0. The stream's previous connection is forgotten, and so
  /// is what `id` carried before. REQUIRES: a stream that the peer's links have.
  void accept(const ConnectionId& id, WorkerId peer, std::uint32_t stream);
  /// Drops the record; no message is sent, and the socket stays as it is. No effect for a
  /// connection that has not greeted.
  void forget(const ConnectionId& id);
  /// As `forget`, of every connection that the peer has dialled.
  void forget_all(WorkerId peer);

  /// Tells the dialler that the connection is not accepted.
  void refuse(const ConnectionId& id, const Refusal& refusal, std::uint32_t stream = 0);
  /// Tells the peer on all its connections that this member counts it as lost.
  void give_up_on(WorkerId peer, const char* why);
  /// Sends the message on every connection of the peer.
  void say(WorkerId peer, LinkKind kind, std::uint64_t number = 0);
  /// Acknowledges the frames taken, on the connection on which the peer was last heard, since a
  /// broken connection would lose the message. If that connection is forgotten, nothing is sent:
  /// the next heartbeat acknowledges.
  void acknowledge(WorkerId peer);

 private:
  LinkPeers& all_;
  std::map<ConnectionId, Connection> connections_;
};

}  // namespace isthmus
