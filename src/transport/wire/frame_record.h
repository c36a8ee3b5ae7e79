// SPDX-License-Identifier: Apache-2.0
// A recording: a record for each frame that a member has sent or received, as bytes of a file
// (RECORDING_FORMAT.md) and back. Damaged or incomplete records are left out and counted; the
// others are valid, since each record has a fixed size and a checksum. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "isthmus/expected.h"
#include "isthmus/types.h"
#include "transport/wire/frame.h"

namespace isthmus {

/// The event of a frame. Values are part of the file's format: append only.
enum class FrameEvent : std::uint8_t {
  kQueued = 1,   // handed to the links
  kLeft = 2,     // given to a connection; again if the connection broke, or the frame was lost
  kCame = 3,     // received on a connection; again likewise
  kTaken = 4,    // read by the exchange
  kLeftOut = 5,  // no frame: `part` records are missing, since the disk was too slow
};

struct FrameRecord {
  std::int64_t time_ns = 0;  // since the recording began, by the member's clock
  FrameEvent event = FrameEvent::kQueued;
  int stream = -1;  // connection of the link; -1: kQueued, kTaken, or none
  WorkerId peer;
  FrameKind kind = FrameKind::kNote;
  std::uint32_t epoch = 0;
  SyncId id;                // for frames about a round
  std::uint32_t part = 0;   // as in the frame's header
  std::uint32_t bytes = 0;  // of the whole frame
  std::uint32_t crc = 0;    // its last four bytes
  bool operator==(const FrameRecord&) const = default;
};

/// The head of a recording, from one process of a member.
struct RecordingHead {
  WorkerId self;
  std::int64_t started_ms = 0;     // since 1970, by the member's clock
  std::vector<std::string> names;  // of all members, a hub last; at most 255 bytes each
  bool operator==(const RecordingHead&) const = default;
};

inline constexpr std::size_t kFrameRecordBytes = 48;
inline constexpr std::size_t kMostRecordedMembers = 4096;

/// Appends a record. REQUIRES: -1 <= stream < 255, and a peer's rank from 0 on.
void write_record(const FrameRecord& record, std::vector<std::byte>& out);
/// Fills `record` from bytes that begin like a frame of this version, except time, event, stream
/// and peer, which the caller has set. RETURNS: false for other bytes.
[[nodiscard]] bool describe_frame(std::span<const std::byte> frame, FrameRecord& record);

/// REQUIRES: 1 to kMostRecordedMembers names, self one of them.
[[nodiscard]] std::vector<std::byte> write_head(const RecordingHead& head);
/// Whether a file begins like a recording, whatever follows.
[[nodiscard]] bool begins_as_recording(std::span<const std::byte> bytes);

struct Recording {
  RecordingHead head;
  std::vector<FrameRecord> records;  // valid records of frames, in order
  std::size_t gaps = 0;              // records of missing ones,
  std::uint64_t left_out = 0;        // and how many are missing
  std::size_t damaged = 0;           // invalid records
  std::size_t first_damaged_at = 0;  // byte offset
  std::size_t cut_off = 0;           // bytes of an incomplete record at the end
};
/// RETURNS: the reason if the bytes are no recording: another file, another version, a damaged
/// head.
[[nodiscard]] Expected<Recording, std::string> read_recording(std::span<const std::byte> bytes);

}  // namespace isthmus
