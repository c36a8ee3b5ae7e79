// SPDX-License-Identifier: Apache-2.0
// The valid keys in a run with a hub, and the enrolment request of a site with an invitation. The
// hub sends the table to every member, in its greeting and with every heartbeat, over links that
// are encrypted with the hub's key; members do not store it. Layout: WIRE_FORMAT.md. Pure values;
// any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "isthmus/expected.h"
#include "transport/links/link_keys.h"
#include "transport/links/link_message.h"

namespace isthmus {

struct KeyTable {
  std::uint64_t version = 0;         // grows with every change
  std::vector<std::string> members;  // public keys, by member; empty: not admitted
  /// Only at the hub, never sent: keys of invitations, whose holders may send kEnrol.
  std::vector<std::string> guests;
};
/// Without the guests.
[[nodiscard]] std::vector<std::byte> write_key_table(const KeyTable& table);
/// RETURNS: LinkFault when the body is no table for that many members, or has a key twice.
[[nodiscard]] Expected<KeyTable, LinkFault> read_key_table(std::span<const std::byte> body,
                                                           int members);

/// Body of kEnrol, on a connection that an invitation's key has opened.
struct EnrolRequest {
  std::string name;  // of the site
  std::string key;   // its public key, to be admitted
  KeyProof proof{};  // of the key's ownership: prove_enrolment
};
[[nodiscard]] std::vector<std::byte> write_enrol_request(const EnrolRequest& request);
[[nodiscard]] Expected<EnrolRequest, LinkFault> read_enrol_request(std::span<const std::byte> body);
/// Computed by the site with its own pair and the hub's key, and by the hub with its pair and the
/// site's key. THROWS: ConfigError when `other` is no valid public key for a shared secret.
[[nodiscard]] KeyProof prove_enrolment(const LinkKeys& own, std::string_view other,
                                       std::string_view invitation, std::string_view name,
                                       std::string_view site_key);

/// The hub's answer to a request: the table, or the reason of a refusal.
struct EnrolAnswer {
  bool welcome = false;
  std::string why = {};
};

}  // namespace isthmus
