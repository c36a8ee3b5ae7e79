// SPDX-License-Identifier: Apache-2.0
// Greetings of peers that dial this member: which are welcome, and the text of a refusal. Part of
// LinkEngine.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "transport/links/link_connections.h"
#include "transport/links/link_member_keys.h"
#include "transport/links/link_peers.h"
#include "transport/links/link_presence.h"
#include "transport/links/link_strangers.h"

namespace isthmus {

class LinkAdmission {
 public:
  LinkAdmission(LinkPeers& all, LinkStrangers& strangers, LinkConnections& connections,
                LinkMemberKeys& keys, LinkPresence& presence)
      : all_(all),
        strangers_(strangers),
        connections_(connections),
        keys_(keys),
        presence_(presence) {}

  /// `owner`: the member whose key opened the connection, if links have keys.
  void take_hello(const ConnectionId& id, const LinkHeader& header, std::span<const std::byte> body,
                  TimePoint now, std::optional<WorkerId> owner);
  /// Whether this connection may speak for `claimed`; if not, refuses and counts the connection.
  bool speaks_for(WorkerId claimed, std::optional<WorkerId> owner, const ConnectionId& id);

 private:
  /// Whether the greeting fits this member and comes from a process that may be its sender now; if
  /// not, refuses and counts the connection.
  bool fits(const ConnectionId& id, const LinkHeader& header, const Hello& hello, TimePoint now);
  /// Whether a new process may replace the known process of this member now.
  [[nodiscard]] bool may_replace(const LinkPeer& peer, TimePoint now) const;
  /// The peer cannot join, since its configuration differs.
  void differs(const Hello& theirs, const Refusal& refusal);
  /// Refuses, and reports `what` to the owner: at its 1st, 2nd, 4th, ... time.
  void refuse_and_tell(const ConnectionId& id, const Refusal& refusal, std::uint32_t stream,
                       const std::string& what);

  LinkPeers& all_;
  LinkStrangers& strangers_;
  LinkConnections& connections_;
  LinkMemberKeys& keys_;
  LinkPresence& presence_;
};

}  // namespace isthmus
