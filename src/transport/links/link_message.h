// SPDX-License-Identifier: Apache-2.0
// Messages on one connection between two members, around the frames: greetings, acknowledgements,
// heartbeats, farewells. A fixed header with its own checksum, then a body; the layout is drawn in
// WIRE_FORMAT.md. Pure functions and values; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/hash.h"
#include "isthmus/expected.h"
#include "isthmus/types.h"
#include "transport/wire/transport.h"

namespace isthmus {

inline constexpr std::uint32_t kLinkMagic = 0x4b4c5349;  // "ISLK" as bytes in the message
inline constexpr std::uint16_t kLinkVersion = 2;
inline constexpr std::size_t kLinkHeaderBytes = 40;
/// Longest body: the largest frame, with room to spare.
inline constexpr std::size_t kMaxLinkBody = kMaxFramePayload + 4096;

/// Values are part of the wire format: append only.
enum class LinkKind : std::uint16_t {
  kHello = 1,      // from the dialler, first on each connection; body: Hello; number: counts
                   // greetings
  kWelcome = 2,    // accepted; body: the listener's incarnation; number: of that greeting; amount:
                   // window, the most bytes in flight
  kRefuse = 3,     // not accepted; body: Refusal
  kData = 4,       // body: a frame; number: its number on the link; amount: its number on this
                   // connection
  kAck = 5,        // number: frames the receiver has taken out of its queue
  kHeartbeat = 6,  // the dialler lives; number: kData messages sent on this connection
  kClose = 7,      // the dialler leaves; number: frames sent in total
  kClosed = 8,     // all frames before kClose have arrived
  kWho = 9,        // data came without kHello on the connection, or with a gap
  kEnrol = 10,     // to a hub, from a holder of an invitation, nothing else before; body:
                   // EnrolRequest
  kKeys = 11,      // from a hub: the valid keys; body: KeyTable (key_table.h)
};

struct LinkHeader {
  LinkKind kind = LinkKind::kHeartbeat;
  std::uint32_t stream = 0;  // index among the parallel connections
  std::uint64_t number = 0;
  std::uint64_t amount = 0;
};

/// Why bytes are no message of a link.
struct LinkFault {
  bool other_version = false;  // a message of an unsupported version
  std::string what;
};
/// The fault of bytes that are no message of the supported version.
[[nodiscard]] inline Unexpected<LinkFault> malformed(std::string what) {
  return Unexpected<LinkFault>({false, std::move(what)});
}

using LinkHeaderBytes = std::array<std::byte, kLinkHeaderBytes>;

/// Bodies of kData are frames with their own checksum, so the header's checksum leaves them out.
[[nodiscard]] LinkHeaderBytes write_link_header(const LinkHeader& header,
                                                std::span<const std::byte> body);
/// RETURNS: LinkFault for a wrong length, magic, version, kind or checksum.
[[nodiscard]] Expected<LinkHeader, LinkFault> parse_link_message(std::span<const std::byte> header,
                                                                 std::span<const std::byte> body);

/// One of several DATA that lie in a row.
struct LinkDataView {
  std::span<const std::byte> header, body;
};
/// Takes the next DATA off `rest`; `parse_link_message` checks it. RETURNS: nothing, with `rest`
/// unchanged, where the bytes do not begin with a whole one.
[[nodiscard]] std::optional<LinkDataView> next_data(std::span<const std::byte>& rest);

/// A member's identity and that of its run, sent on every connection that it dials.
struct Hello {
  std::uint16_t protocol = 0;  // version of its frames
  int members = 1;
  WorkerId from;
  WorkerId to;                // the member that it dials
  int streams = 1;            // of each directed link, at first
  int most_streams = 0;       // of each directed link, at most; 0: as streams
  Digest128 run;              // of the run's name and secret, if it has one
  std::string configuration;  // sha256_hex of the values that all members must have equal
  Digest128 layout;           // of parameter names, shapes and order
  Digest128 incarnation;      // a random number, drawn anew by every process
  std::string name;           // of the site, for people; at most 64 bytes
};
inline constexpr std::size_t kMaxMemberName = 64;

[[nodiscard]] std::vector<std::byte> write_hello(const Hello& hello);
/// RETURNS: LinkFault when the body is no greeting.
[[nodiscard]] Expected<Hello, LinkFault> read_hello(std::span<const std::byte> body);

/// Body of kWelcome.
[[nodiscard]] std::vector<std::byte> write_incarnation(const Digest128& incarnation);
[[nodiscard]] Expected<Digest128, LinkFault> read_incarnation(std::span<const std::byte> body);

/// The property in which two members differ. Values are part of the wire format: append only.
enum class RefusedField : std::uint16_t {
  kProtocol = 1,
  kRun = 2,
  kConfiguration = 3,
  kLayout = 4,
  kMembers = 5,
  kPlace = 6,        // the address belongs to another member
  kIncarnation = 7,  // another process already is this member
  kGivenUp = 8,      // the refuser counts the member as lost
  kMalformed = 9,
  kKey = 10,  // opened with another member's key, or an unknown one
};
[[nodiscard]] const char* name_of(RefusedField field);

struct Refusal {
  RefusedField field = RefusedField::kMalformed;
  std::string what;  // one line for people: the property and both values
};

[[nodiscard]] std::vector<std::byte> write_refusal(const Refusal& refusal);
[[nodiscard]] Expected<Refusal, LinkFault> read_refusal(std::span<const std::byte> body);

/// Whether a caller with hello `theirs` is the peer that a listener with hello `mine` waits for.
/// RETURNS: the first difference in the order of RefusedField. The caller of this function compares
/// keys, since it knows the connection (link_engine.h).
[[nodiscard]] Expected<void, Refusal> accept(const Hello& mine, const Hello& theirs);

}  // namespace isthmus
