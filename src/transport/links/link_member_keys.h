// SPDX-License-Identifier: Apache-2.0
// The valid keys: those of the configuration, or of the table that one member (a hub) announces. A
// changed key ends the links of its former owner. Part of LinkEngine.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/links/link_connections.h"
#include "transport/links/link_peers.h"
#include "transport/links/link_presence.h"
#include "transport/links/link_strangers.h"

namespace isthmus {

class LinkMemberKeys {
 public:
  /// If keys are announced, only this member's and the announcing member's keys are valid at first.
  LinkMemberKeys(LinkPeers& all, LinkStrangers& strangers, LinkConnections& connections,
                 LinkPresence& presence);

  /// Whether members with keys outside the configuration may be admitted.
  [[nodiscard]] bool may_come() const { return all_.options.keys_from && all_.options.keys_come; }
  /// Whether only the announcing member can be admitted, since no table has arrived.
  [[nodiscard]] bool awaited() const {
    return may_come() && all_.options.self != *all_.options.keys_from && !version_;
  }
  /// Whether the configuration alone decides about the announcing member's key. If it also gives
  /// all other keys, a key that is refused here belongs to no member.
  [[nodiscard]] bool final_for(WorkerId rank) const {
    return all_.options.keys_from == rank && !all_.options.keys_come;
  }

  /// At the announcing member: the new table. All living peers are told.
  void set(const KeyTable& table);
  /// A table that a peer has sent.
  void take(WorkerId from, std::span<const std::byte> body);
  /// At the announcing member: sends the table to the peer. Each heartbeat repeats it, since a
  /// broken connection loses messages.
  void say(WorkerId rank);
  /// A new process is this member. A new announcing process counts versions from the start.
  void begin_anew(WorkerId rank);

 private:
  void use(const std::vector<std::string>& keys);
  void change(WorkerId rank, const std::string& key);

  LinkPeers& all_;
  LinkStrangers& strangers_;
  LinkConnections& connections_;
  LinkPresence& presence_;
  std::vector<std::string> file_keys_;    // of the configuration; an empty key may be announced
  std::optional<std::uint64_t> version_;  // of the announced table in use
};

}  // namespace isthmus
