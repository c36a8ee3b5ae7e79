// SPDX-License-Identifier: Apache-2.0
// One frame of the exchange between members: a fixed header, a payload, a checksum. The layout is
// drawn in WIRE_FORMAT.md; fields are little-endian, version and length come first, CRC-32C last.
// For any bytes `parse_frame` returns a frame or a reason, and never reads out of bounds. Pure
// functions and values; any thread.
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

/// The kind of a frame. Values are part of the wire format: append only.
enum class FrameKind : std::uint16_t {
  kContribution = 1,  // one part of the sender's encoded vector
  kResult = 2,        // one part of the mean, from its owner: contributor bits, then encoded tiles
  kDone = 3,          // the sender has the whole result; with its digest; to the coordinator
  kCommit = 4,        // all digests agree; from the coordinator
  kAbort = 5,         // the round cannot become final; cause: worker `part`, `offset`, payload
  kProbe = 6,         // asks for an echo, which queues behind all data sent before it
  kEcho = 7,          // `part`: number of echoes sent to this peer
  kRequest = 8,       // parts missing at the echo numbered `part`; payload: entries
  kBye = 9,           // the sender begins no round and waits for none any more
  kNote = 10,         // bytes for the program; not repeated if lost
  kEpoch = 11,        // the membership (transport/exchange/membership.h); from the coordinator
  kGone = 12,         // to the coordinator: the sender has lost member `part`
  kPartial = 13,      // one part of a group's mean, to its owner: contributor bits, tiles
  kBegun = 14,        // the sender has begun the round; `part`, `offset`: the one before it
};
inline constexpr auto kLastFrameKind = FrameKind::kBegun;

/// A BEGUN frame's part: no round before.
inline constexpr std::uint32_t kNoRoundBefore = 0xFFFFFFFF;

/// A GONE frame's offset: the member is present, but has not begun a round for long.
inline constexpr std::uint64_t kStraggles = 1;
/// ... the member is heard, but the sender's values do not reach it.
inline constexpr std::uint64_t kStalls = 2;
/// ... the member has said that it counts the sender as lost.
inline constexpr std::uint64_t kGivesUp = 3;

/// Weights are 0 (receives without contributing) or in a range whose sums fit fp32. Their products
/// with values may still overflow or underflow; the mean is then infinite, NaN or zero on all
/// members alike.
inline constexpr double kSmallestWeight = 1e-30;
inline constexpr double kLargestWeight = 1e30;
[[nodiscard]] constexpr bool is_weight(double weight) {
  return weight == 0 || (weight >= kSmallestWeight && weight <= kLargestWeight);
}
/// A group's weight is the sum of its contributors' weights.
inline constexpr double kLargestGroupWeight = kLargestWeight * 1e6;

struct FrameHeader {
  FrameKind kind = FrameKind::kBye;
  std::uint32_t epoch = 0;
  SyncId id;               // fragment and send step of the round
  std::uint32_t part = 0;  // index among the `parts` parts of the round's vector
  std::uint32_t parts = 0;
  std::uint64_t offset = 0;  // of the part's tiles in the encoded vector, in bytes
  std::uint32_t layout = 0;  // hash of codec, size and exchange; differs for other configurations
  double weight = 0;         // the sender's or its group's weight in the mean; see is_weight
  std::int64_t closed_before = 0;  // all rounds sent before this step are final at the sender
};

/// A checked frame; `payload` borrows the bytes that it was parsed from.
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
  /// The payload; unspecified until written. The caller writes all of it.
  [[nodiscard]] std::span<std::byte> payload();
  /// Adds the checksum. Call once.
  [[nodiscard]] FrameBytes finish() &&;

 private:
  std::unique_ptr<std::byte[]> bytes_;
  std::size_t size_;
};

[[nodiscard]] FrameBytes make_frame(const FrameHeader& header,
                                    std::span<const std::byte> payload = {});
/// The same without a copy of the payload: `owner`, which keeps it unchanged, is held together with
/// the frame. The payload is copied, and its checksum computed, when the frame is sent.
[[nodiscard]] FrameBytes make_frame_around(const FrameHeader& header,
                                           std::span<const std::byte> payload,
                                           std::shared_ptr<const void> owner);

/// RETURNS: FrameError for a wrong length, magic, version, kind, field or checksum.
[[nodiscard]] Expected<Frame, FrameError> parse_frame(std::span<const std::byte> bytes);

/// The fields that decide a frame's place in the queue; for bytes built here, without checks.
struct FrameOrder {
  FrameKind kind = FrameKind::kNote;
  StepIndex sent;
};
/// RETURNS: nothing for bytes that do not begin like a frame of this version.
[[nodiscard]] std::optional<FrameOrder> order_of(std::span<const std::byte> bytes);
[[nodiscard]] std::optional<FrameOrder> order_of(const FrameBytes& frame);
/// Whether frames of this kind carry a round's values.
[[nodiscard]] constexpr bool is_values(FrameKind kind) {
  return kind == FrameKind::kContribution || kind == FrameKind::kResult ||
         kind == FrameKind::kPartial;
}

/// A frame whose bytes `parse_frame` has accepted before; no checks.
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
/// A request names at most this many ranges; the rest is requested next time.
inline constexpr std::size_t kMaxRequestEntries = 1024;

[[nodiscard]] std::vector<std::byte> write_request(std::span<const RequestEntry> entries);
/// RETURNS: FrameError when the payload is no list of entries.
[[nodiscard]] Expected<std::vector<RequestEntry>, FrameError> read_request(
    std::span<const std::byte> payload);

}  // namespace isthmus
