// SPDX-License-Identifier: Apache-2.0
// What is said to a relay, and by it, before and between the bytes of links that it passes on
// (WIRE_FORMAT.md, Relays). Words go both ways, requests to the relay. Pure; any thread.
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
  kGreeting = 1,      // relay, first on every connection; its token is a challenge
  kGreetingKeys = 2,  // ... where a proof is asked for
  kDone = 3,          // relay, to a request: what follows is the other end's
  kCall = 4,          // relay, to who listens: somebody calls; answer with the token
  kBeat = 5,          // either, while a member listens
  // To a request, before the end of the connection:
  kVersion = 16,
  kMalformed = 17,
  kRun = 18,
  kKey = 19,
  kPlace = 20,     // no such members
  kTaken = 21,     // another process listens as this member
  kNobody = 22,    // whom one calls does not listen
  kNoAnswer = 23,  // ... did not answer
  kFull = 24,
  kNotYet = 25,  // the relay has not been told the asker's key (keys come from a hub)
};
/// For people, in the relay's place: "nobody listens there as that site".
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
  kListen = 1,  // `from` is to be called here; stays open
  kDial = 2,    // connects `from` to `to`
  kAccept = 3,  // `from` answers the call `token`
};
struct RelayRequest {
  RelayVerb verb = RelayVerb::kListen;
  WorkerId from;
  WorkerId to;  // but for kDial as `from`
  Digest128 run;
  Digest128 token = {};  // kAccept
  KeyProof proof = {};   // zeros without keys
};
/// REQUIRES: places in [0, 65535].
[[nodiscard]] RelayRequestBytes write_relay_request(const RelayRequest& request);
/// RETURNS: kVersion or kMalformed.
[[nodiscard]] Expected<RelayRequest, RelayWordKind> read_relay_request(
    std::span<const std::byte, kRelayRequestBytes> bytes);

/// That the request comes from the owner of a key and is meant for that of another, now: alike from
/// both ends, given one's own pair and the other's public key.
[[nodiscard]] KeyProof prove_request(const LinkKeys& own, std::string_view other,
                                     const RelayRequest& request, const Digest128& challenge);
[[nodiscard]] KeyProof prove_request(const SharedKey& shared, const RelayRequest& request,
                                     const Digest128& challenge);

}  // namespace isthmus
