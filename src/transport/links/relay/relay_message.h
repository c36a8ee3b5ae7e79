// SPDX-License-Identifier: Apache-2.0
// Messages to and from a relay, before and between the bytes of links that it forwards
// (WIRE_FORMAT.md, Relays). Words go both ways, requests only to the relay. Pure; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/base/hash.h"
#include "isthmus/expected.h"
#include "isthmus/types.h"
#include "transport/links/link_keys.h"

namespace isthmus {

inline constexpr std::size_t kRelayWordBytes = 28;
inline constexpr std::size_t kRelayRequestBytes = 80;
using RelayWordBytes = std::array<std::byte, kRelayWordBytes>;
using RelayRequestBytes = std::array<std::byte, kRelayRequestBytes>;

enum class RelayWordKind : std::uint16_t {
  kGreeting = 1,      // from the relay, first on every connection; its token is a challenge
  kGreetingKeys = 2,  // the same, if a proof is required
  kDone = 3,          // from the relay, to a request: the other end's bytes follow
  kCall = 4,          // from the relay, to a listening member: answer a call with the token
  kBeat = 5,          // from both, while a member listens
  // Refusals of a request, before the end of the connection:
  kVersion = 16,
  kMalformed = 17,
  kRun = 18,
  kKey = 19,
  kPlace = 20,     // no such members
  kTaken = 21,     // another process listens as this member
  kNobody = 22,    // the called member does not listen
  kNoAnswer = 23,  // the called member did not answer
  kFull = 24,
  kNotYet = 25,  // the asker's key is not announced yet (keys come from a hub)
};
/// For people, about the relay: "nobody listens there as that site".
[[nodiscard]] std::string_view relay_words(RelayWordKind kind);

struct RelayWord {
  RelayWordKind kind = RelayWordKind::kBeat;
  Digest128 token = {};
};
[[nodiscard]] RelayWordBytes write_relay_word(const RelayWord& word);
/// RETURNS: kVersion or kMalformed.
[[nodiscard]] Expected<RelayWord, RelayWordKind> read_relay_word(
    std::span<const std::byte, kRelayWordBytes> bytes);

enum class RelayVerb : std::uint16_t {
  kListen = 1,  // `from` can be called here; stays open
  kDial = 2,    // connects `from` to `to`
  kAccept = 3,  // `from` answers the call with `token`
};
struct RelayRequest {
  RelayVerb verb = RelayVerb::kListen;
  WorkerId from;
  WorkerId to;  // for kDial; otherwise equal to `from`
  Digest128 run;
  Digest128 token = {};  // kAccept
  KeyProof proof = {};   // zeros without keys
};
/// REQUIRES: places in [0, 65535].
[[nodiscard]] RelayRequestBytes write_relay_request(const RelayRequest& request);
/// RETURNS: kVersion or kMalformed.
[[nodiscard]] Expected<RelayRequest, RelayWordKind> read_relay_request(
    std::span<const std::byte, kRelayRequestBytes> bytes);

/// A proof that the request comes from the owner of one key and is meant for the owner of the
/// other, now: the same from both ends, given one's own pair and the other's public key.
[[nodiscard]] KeyProof prove_request(const LinkKeys& own, std::string_view other,
                                     const RelayRequest& request, const Digest128& challenge);
[[nodiscard]] KeyProof prove_request(const SharedKey& shared, const RelayRequest& request,
                                     const Digest128& challenge);

}  // namespace isthmus
