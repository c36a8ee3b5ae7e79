// SPDX-License-Identifier: Apache-2.0
// One frame of the exchange between members: a fixed header, a payload, a checksum. The layout is
// drawn in WIRE_FORMAT.md; fields are little-endian, version and length come first, CRC-32C last.
// Whatever bytes arrive, `parse_frame` answers with a frame or a reason; it never reads outside.
// Pure functions and values; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "isthmus/expected.h"
#include "isthmus/transport.h"
#include "transport/wire/transport.h"

namespace isthmus {

inline constexpr std::uint32_t kFrameMagic = 0x48545349;  // "ISTH" as bytes in the frame
inline constexpr std::uint16_t kFrameVersion = 2;
inline constexpr std::size_t kFrameHeaderBytes = 64;
inline constexpr std::size_t kFrameTrailerBytes = 4;
inline constexpr std::size_t kFrameOverheadBytes = kFrameHeaderBytes + kFrameTrailerBytes;

/// What a frame says. Values are part of the wire format: append only.
enum class FrameKind : std::uint16_t {
  kContribution = 1,  // one part of the sender's encoded vector
  kResult = 2,        // one part of the mean, from its owner: contributor bits, then encoded tiles
  kDone = 3,          // "I have the whole result", with its digest; to member 0
  kCommit = 4,        // all digests agree; from member 0
  kAbort = 5,     // it cannot become final; about worker `part`, why in `offset` and the payload
  kProbe = 6,     // asks for an echo, which queues behind all data sent before it
  kEcho = 7,      // `part` counts the echoes sent to this peer
  kRequest = 8,   // parts missing although the echo numbered `part` has come; payload: entries
  kBye = 9,       // the sender will begin and wait for nothing more
  kNote = 10,     // bytes for the program above; nobody repeats one that is lost
  kEpoch = 11,    // who takes part in which rounds (transport/exchange/membership.h); from member 0
  kGone = 12,     // to member 0: member `part` is gone, as the sender sees it
  kPartial = 13,  // one part of a group's mean, to the part's owner: contributor bits, then tiles
  kBegun = 14,    // the sender has begun that round; `part`, `offset`: the one it began before
};
inline constexpr auto kLastFrameKind = FrameKind::kBegun;

/// A BEGUN frame's part: the sender had begun no round before.
inline constexpr std::uint32_t kNoRoundBefore = 0xFFFFFFFF;

/// A GONE frame's offset: the member is there, but has not begun a round for long.
inline constexpr std::uint64_t kStraggles = 1;
/// ... it is heard, and the sender's values do not get through to it.
inline constexpr std::uint64_t kStalls = 2;
/// ... it has said that it counts the sender as lost.
inline constexpr std::uint64_t kGivesUp = 3;

/// Shares are 0 (takes without giving) or in a range whose sums fp32 holds. Their products with
/// values may still leave it; the mean is then not finite, or zero, on all members alike.
inline constexpr double kSmallestWeight = 1e-30;
inline constexpr double kLargestWeight = 1e30;
[[nodiscard]] constexpr bool is_weight(double weight) {
  return weight == 0 || (weight >= kSmallestWeight && weight <= kLargestWeight);
}
/// A group's weight is the sum of its contributors'.
inline constexpr double kLargestGroupWeight = kLargestWeight * 1e6;

struct FrameHeader {
  FrameKind kind = FrameKind::kBye;
  std::uint32_t epoch = 0;
  SyncId id;               // fragment and send step of the round
  std::uint32_t part = 0;  // which of `parts` parts of the round's vector
  std::uint32_t parts = 0;
  std::uint64_t offset = 0;  // place of the part's tiles in the encoded vector, in bytes
  std::uint32_t layout = 0;  // hash of codec, size and exchange, so that unlike configurations show
  double weight = 0;         // the sender's share in the mean, or its group's; see is_weight
  std::int64_t closed_before = 0;  // the sender is through with all rounds sent before this step
};

/// A checked frame; `payload` borrows the bytes it was parsed from.
struct Frame {
  FrameHeader header;
  std::span<const std::byte> payload;
};

/// Why bytes are no frame.
struct FrameError {
  std::string what;
};

/// Builds one frame in place, so that an encoder can write straight into the payload.
class FrameBuilder {
 public:
  /// REQUIRES: payload_bytes <= kMaxFramePayload.
  FrameBuilder(const FrameHeader& header, std::size_t payload_bytes);
  /// The payload; unspecified until written, all of which is the caller's duty.
  [[nodiscard]] std::span<std::byte> payload();
  /// Adds the checksum. Call once.
  [[nodiscard]] FrameBytes finish() &&;

 private:
  std::unique_ptr<std::byte[]> bytes_;
  std::size_t size_;
};

[[nodiscard]] FrameBytes make_frame(const FrameHeader& header,
                                    std::span<const std::byte> payload = {});
/// The same with a payload that stays where it is, and which `owner`, who keeps it unchanged, holds
/// together with the frame. It is copied, and its checksum found on the way, where the frame goes.
[[nodiscard]] FrameBytes make_frame_around(const FrameHeader& header,
                                           std::span<const std::byte> payload,
                                           std::shared_ptr<const void> owner);

/// RETURNS: FrameError for a wrong length, magic, version, kind, field or checksum.
[[nodiscard]] Expected<Frame, FrameError> parse_frame(std::span<const std::byte> bytes);

/// What decides when a frame goes, of bytes that were built here: no check but for what they are.
struct FrameOrder {
  FrameKind kind = FrameKind::kNote;
  StepIndex sent;
};
/// RETURNS: nothing for bytes that do not begin as a frame of this version does.
[[nodiscard]] std::optional<FrameOrder> order_of(std::span<const std::byte> bytes);
[[nodiscard]] std::optional<FrameOrder> order_of(const FrameBytes& frame);
/// Whether frames of this kind bring a round's values.
[[nodiscard]] constexpr bool is_values(FrameKind kind) {
  return kind == FrameKind::kContribution || kind == FrameKind::kResult ||
         kind == FrameKind::kPartial;
}

/// The frame whose bytes `parse_frame` has accepted before; no checks.
[[nodiscard]] Frame accepted_frame(const FrameBytes& frame);
/// Its payload.
[[nodiscard]] std::span<const std::byte> payload_of(const FrameBytes& frame);

/// Parts of one kind that a kRequest asks for: first, first + 1, ... first + count - 1.
struct RequestEntry {
  FrameKind kind = FrameKind::kContribution;  // or kResult, kPartial
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  bool operator==(const RequestEntry&) const = default;
};
/// A request names at most this many ranges; what it leaves out is asked for next time.
inline constexpr std::size_t kMaxRequestEntries = 1024;

[[nodiscard]] std::vector<std::byte> write_request(std::span<const RequestEntry> entries);
/// RETURNS: FrameError when the payload is no list of entries.
[[nodiscard]] Expected<std::vector<RequestEntry>, FrameError> read_request(
    std::span<const std::byte> payload);

}  // namespace isthmus
