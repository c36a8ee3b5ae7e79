// SPDX-License-Identifier: Apache-2.0
// Whose keys count in a run with a hub, and the one word of who comes with an invitation. The hub
// tells every member the table, at its greeting and with every heartbeat, over links that are
// encrypted with the hub's key; members keep nothing of it. Layout: WIRE_FORMAT.md. Pure values;
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
  std::vector<std::string> members;  // public keys, by member; empty: nobody is let in there
  /// At the hub alone, never sent: keys of invitations. Whoever has one may say kEnrol.
  std::vector<std::string> guests;
};
/// Less the guests.
[[nodiscard]] std::vector<std::byte> write_key_table(const KeyTable& table);
/// RETURNS: LinkFault when the body is none for that many members, or a key is there twice.
[[nodiscard]] Expected<KeyTable, LinkFault> read_key_table(std::span<const std::byte> body,
                                                           int members);

/// Body of kEnrol, on a connection that an invitation's key has opened.
struct EnrolRequest {
  std::string name;  // of the site
  std::string key;   // its public key, from now on
  KeyProof proof{};  // that its owner is who asks: prove_enrolment
};
[[nodiscard]] std::vector<std::byte> write_enrol_request(const EnrolRequest& request);
[[nodiscard]] Expected<EnrolRequest, LinkFault> read_enrol_request(std::span<const std::byte> body);
/// By the site with its own pair and the hub's key, by the hub with its pair and the site's.
/// THROWS: ConfigError when `other` is no key that one can share a secret with.
[[nodiscard]] KeyProof prove_enrolment(const LinkKeys& own, std::string_view other,
                                       std::string_view invitation, std::string_view name,
                                       std::string_view site_key);

/// What a hub says to that: the table, or why not.
struct EnrolAnswer {
  bool welcome = false;
  std::string why = {};
};

}  // namespace isthmus
