// SPDX-License-Identifier: Apache-2.0
// The connections that peers have dialled to this member: which peer and stream each one is, and
// what goes back over them (acknowledgements, refusals). Part of LinkEngine.
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
  /// `id` carries this stream of the peer from now on, in place of the connection before.
  void accept(const ConnectionId& id, WorkerId peer, std::uint32_t stream);
  void forget(const ConnectionId& id);
  void forget_all(WorkerId peer);

  /// Tells the dialler that it is not accepted.
  void refuse(const ConnectionId& id, const Refusal& refusal, std::uint32_t stream = 0);
  /// Tells the peer on all its connections that this member does without it.
  void give_up_on(WorkerId peer, const char* why);
  /// Says this on every connection of the peer.
  void say(WorkerId peer, LinkKind kind, std::uint64_t number = 0);
  /// Acknowledges the frames taken, where the peer was heard last: a connection that broke would
  /// swallow the message.
  void acknowledge(WorkerId peer);

 private:
  LinkPeers& all_;
  std::map<ConnectionId, Connection> connections_;
};

}  // namespace isthmus
