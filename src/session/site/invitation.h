// SPDX-License-Identifier: Apache-2.0
// An invitation: a string that a hub gives to a site that has no key in the file; letters, digits,
// dots, dashes and underscores, "isthmus1.…". It holds the facts that the hub will check, and a
// token that only the hub can make. Any holder of the token can enrol, so the string is a secret
// until it is used. The token never travels: it is the seed of the key pair with which the
// enrolling connection authenticates, so an eavesdropper cannot replay it. Pure; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "isthmus/expected.h"
#include "transport/links/link_keys.h"

namespace isthmus::app {

struct Invitation {
  std::array<std::uint8_t, 16> run{};    // of the hub's folder, drawn at random
  std::array<std::uint8_t, 8> number{};  // unique
  std::int64_t expires = 0;              // seconds since 1970, by the hub's clock
  std::uint32_t uses = 1;                // number of keys that may enrol with it
  std::string name;                      // of the site
  std::string address;                   // of the hub: HOST:PORT
  std::string hub_key;
  KeyProof token{};
  ~Invitation();
};

/// Fills `token`: crypto_auth of all other fields, with the hub's secret as key.
void sign(Invitation& invitation, std::string_view secret);
/// The key pair derived from the token.
[[nodiscard]] LinkKeys keys_of(const Invitation& invitation);

[[nodiscard]] std::string write_invitation(const Invitation& invitation);
/// RETURNS: the reason if the text is no invitation, without repeating the text.
[[nodiscard]] Expected<Invitation, std::string> read_invitation(std::string_view text);

}  // namespace isthmus::app
