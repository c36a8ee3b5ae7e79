// SPDX-License-Identifier: Apache-2.0
// Reports on unknown diallers: bytes that are no message, keys of no member, refused greetings.
// Each text is reported at its 1st, 2nd, 4th, ... time, and the number of texts is bounded, so
// strangers cannot fill a log. Part of LinkEngine.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "transport/links/link_peers.h"

namespace isthmus {

class LinkStrangers {
 public:
  explicit LinkStrangers(const LinkPeers& all) : all_(all) {}

  /// A stranger has sent bytes that are no member's message.
  void sent(const std::string& what);
  /// Counts `what` among the texts of its kind.
  void count(LinkEvent::Kind kind, const std::string& what);
  /// A stranger has connected to `endpoint` and failed in the handshake.
  void failed_handshake(HandshakeFault fault, const std::string& endpoint);
  /// A connection was refused because its key belongs to no member.
  void brought_key(const std::string& public_key);

  /// Why a member may be missing: the last stranger with a key, or without one. May be empty.
  [[nodiscard]] const std::string& hint() const { return hint_; }
  /// When a connection with an unknown key was last refused.
  [[nodiscard]] const std::optional<TimePoint>& last_foreign_key() const { return foreign_key_; }

 private:
  const LinkPeers& all_;
  std::uint64_t messages_ = 0;
  std::map<std::string, std::uint64_t> times_by_text_;
  std::string hint_;
  std::optional<TimePoint> foreign_key_;
};

/// Advice for the case that one end of a connection has a key and the other has none.
inline constexpr const char* kKeysAllOrNone = "give every site its key (`isthmus keygen`), or none";

}  // namespace isthmus
