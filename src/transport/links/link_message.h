// SPDX-License-Identifier: Apache-2.0
// What travels on one connection between two members, around the frames: who is there, how far the
// other has come, who leaves. A fixed header with its own checksum, then a body; the layout is
// drawn in WIRE_FORMAT.md. Pure functions and values; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
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
inline constexpr std::uint16_t kLinkVersion = 1;
inline constexpr std::size_t kLinkHeaderBytes = 40;
/// A body is at most this long: the biggest frame, with room to spare.
inline constexpr std::size_t kMaxLinkBody = kMaxFramePayload + 4096;

/// Values are part of the wire format: append only.
enum class LinkKind : std::uint16_t {
  kHello = 1,      // who dials, on every connection first; body: Hello; number: which greeting
  kWelcome = 2,    // accepted; body: whose incarnation listens; number: that greeting; amount:
                   // bytes that may be under way
  kRefuse = 3,     // not accepted; body: why
  kData = 4,       // body: a frame; number: its place on the link; amount: on this connection
  kAck = 5,        // number: frames the receiver has taken out of its queue
  kHeartbeat = 6,  // the dialler lives; number: kData messages sent on this connection
  kClose = 7,      // the dialler leaves; number: frames sent in all
  kClosed = 8,     // all of them have come
  kWho = 9,        // data came on a connection that has not said kHello, or not all of it came
  kEnrol = 10,     // who holds an invitation, to a hub, and nothing else; body: EnrolRequest
  kKeys = 11,      // from a hub: whose keys count from now on; body: KeyTable (key_table.h)
};

struct LinkHeader {
  LinkKind kind = LinkKind::kHeartbeat;
  std::uint32_t stream = 0;  // which of the parallel connections
  std::uint64_t number = 0;
  std::uint64_t amount = 0;
};

/// Why bytes are no message of a link.
struct LinkFault {
  bool other_version = false;  // a message, of a version not spoken here
  std::string what;
};
/// The fault of bytes that are no message of the version spoken here.
[[nodiscard]] inline Unexpected<LinkFault> malformed(std::string what) {
  return Unexpected<LinkFault>({false, std::move(what)});
}

using LinkHeaderBytes = std::array<std::byte, kLinkHeaderBytes>;

/// Bodies of kData are frames with a checksum of their own, so they are not summed again.
[[nodiscard]] LinkHeaderBytes write_link_header(const LinkHeader& header,
                                                std::span<const std::byte> body);
/// RETURNS: LinkFault for a wrong length, magic, version, kind or checksum.
[[nodiscard]] Expected<LinkHeader, LinkFault> parse_link_message(std::span<const std::byte> header,
                                                                 std::span<const std::byte> body);

/// What a member says of itself and of the run it belongs to, on every connection it dials.
struct Hello {
  std::uint16_t protocol = 0;  // version of the frames it speaks
  int members = 1;
  WorkerId from;
  WorkerId to;                // whom it means to reach
  int streams = 1;            // of each directed link, from the beginning
  int most_streams = 0;       // it may come to so many; 0: no more than that
  Digest128 run;              // of the run's name and secret, if it has one
  std::string configuration;  // sha256_hex of what all members must have alike
  Digest128 layout;           // of parameter names, shapes and order
  Digest128 incarnation;      // drawn afresh by every process
  std::string name;           // the site, for people; at most 64 bytes
};
inline constexpr std::size_t kMaxMemberName = 64;

[[nodiscard]] std::vector<std::byte> write_hello(const Hello& hello);
/// RETURNS: LinkFault when the body is none.
[[nodiscard]] Expected<Hello, LinkFault> read_hello(std::span<const std::byte> body);

/// Body of kWelcome.
[[nodiscard]] std::vector<std::byte> write_incarnation(const Digest128& incarnation);
[[nodiscard]] Expected<Digest128, LinkFault> read_incarnation(std::span<const std::byte> body);

/// In what two members differ. Values are part of the wire format: append only.
enum class RefusedField : std::uint16_t {
  kProtocol = 1,
  kRun = 2,
  kConfiguration = 3,
  kLayout = 4,
  kMembers = 5,
  kPlace = 6,        // the address is another member's
  kIncarnation = 7,  // another process already is this member
  kGivenUp = 8,      // the refuser has counted the member as lost
  kMalformed = 9,
  kKey = 10,  // the connection was opened with another member's key, or with none that is known
};
[[nodiscard]] const char* name_of(RefusedField field);

struct Refusal {
  RefusedField field = RefusedField::kMalformed;
  std::string what;  // one line for people: the thing, both values
};

[[nodiscard]] std::vector<std::byte> write_refusal(const Refusal& refusal);
[[nodiscard]] Expected<Refusal, LinkFault> read_refusal(std::span<const std::byte> body);

/// In what a caller's hello keeps it from being the peer that a listener (its own hello: `mine`)
/// waits for; no field set: nothing. The first difference of the order of RefusedField. Keys are
/// compared by who knows the connection (link_engine.h).
[[nodiscard]] Expected<void, Refusal> accept(const Hello& mine, const Hello& theirs);

}  // namespace isthmus
