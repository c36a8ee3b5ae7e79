// SPDX-License-Identifier: Apache-2.0
// Whose keys count: those of the configuration, or of the table that one member (a hub) announces.
// A key that changes ends the links of its former owner. Part of LinkEngine.
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
  /// Where keys are announced, only the own one and that of the announcing member count at first.
  LinkMemberKeys(LinkPeers& all, LinkStrangers& strangers, LinkConnections& connections,
                 LinkPresence& presence);

  /// Whether members may be let in whose keys are not in the configuration.
  [[nodiscard]] bool may_come() const { return all_.options.keys_from && all_.options.keys_come; }
  /// Whether only the announcing member can be let in, since no table has come.
  [[nodiscard]] bool awaited() const {
    return may_come() && all_.options.self != *all_.options.keys_from && !version_;
  }
  /// The announcing member's key is known from the configuration alone. Where the configuration
  /// gives that member's key and all others, a key that is refused here is no member's.
  [[nodiscard]] bool final_for(WorkerId rank) const {
    return all_.options.keys_from == rank && !all_.options.keys_come;
  }

  /// At the announcing member: the table from now on. All living peers are told.
  void set(const KeyTable& table);
  /// A table that a peer has sent.
  void take(WorkerId from, std::span<const std::byte> body);
  /// At the announcing member: tells the peer the table. Each heartbeat repeats the table, since a
  /// connection that breaks loses messages.
  void say(WorkerId rank);
  /// Another process is this member. An announcing process counts versions from the start.
  void begin_anew(WorkerId rank);

 private:
  void use(const std::vector<std::string>& keys);
  void change(WorkerId rank, const std::string& key);

  LinkPeers& all_;
  LinkStrangers& strangers_;
  LinkConnections& connections_;
  LinkPresence& presence_;
  std::vector<std::string> file_keys_;    // as configured; an empty key may be announced
  std::optional<std::uint64_t> version_;  // of the table in use, where one is announced
};

}  // namespace isthmus
