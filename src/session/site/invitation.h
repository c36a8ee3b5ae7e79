// SPDX-License-Identifier: Apache-2.0
// What a hub gives a site that has no key in the file: one string of letters, digits, dots, dashes
// and underscores, "isthmus1.…". It holds what the hub will check and a token that only the hub can
// make; whoever has the token can ask to be let in, so the string is a secret until it is used. The
// token never travels: it is the seed of the key pair that the asking connection proves itself
// with, so nobody who listens can replay it. Pure; any thread.
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
  std::array<std::uint8_t, 8> number{};  // no two are alike
  std::int64_t expires = 0;              // seconds since 1970, by the hub's clock
  std::uint32_t uses = 1;                // keys that may come with it, one after another
  std::string name;                      // of the site
  std::string address;                   // of the hub: HOST:PORT
  std::string hub_key;
  KeyProof token{};
  ~Invitation();
};

/// Fills `token`: crypto_auth of all else, by the hub's secret.
void sign(Invitation& invitation, std::string_view secret);
/// The pair that follows from the token.
[[nodiscard]] LinkKeys keys_of(const Invitation& invitation);

[[nodiscard]] std::string write_invitation(const Invitation& invitation);
/// RETURNS: why the text is none, never repeating it.
[[nodiscard]] Expected<Invitation, std::string> read_invitation(std::string_view text);

}  // namespace isthmus::app
