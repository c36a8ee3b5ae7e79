// SPDX-License-Identifier: Apache-2.0
// A recording: one record for each frame that a member has sent or got, as bytes of a file
// (RECORDING_FORMAT.md) and back. What is damaged or cut off is left out and counted; the
// rest is whole, since records have a fixed size and a checksum each. Pure.
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

/// What happened to a frame. Values are part of the file's format: append only.
enum class FrameEvent : std::uint8_t {
  kQueued = 1,   // handed to the links
  kLeft = 2,     // put into a connection; again where one broke, or it was lost
  kCame = 3,     // brought by a connection; again likewise
  kTaken = 4,    // the exchange has taken it
  kLeftOut = 5,  // no frame: `part` records are missing here, for which the disk was too slow
};

struct FrameRecord {
  std::int64_t time_ns = 0;  // since the recording began, by the member's own clock
  FrameEvent event = FrameEvent::kQueued;
  int stream = -1;  // which connection of the link; -1: of kQueued and kTaken, or none
  WorkerId peer;
  FrameKind kind = FrameKind::kNote;
  std::uint32_t epoch = 0;
  SyncId id;                // of frames about a round
  std::uint32_t part = 0;   // as in the frame's header
  std::uint32_t bytes = 0;  // of the whole frame
  std::uint32_t crc = 0;    // its last four bytes
  bool operator==(const FrameRecord&) const = default;
};

/// Of one member's process.
struct RecordingHead {
  WorkerId self;
  std::int64_t started_ms = 0;     // since 1970, by the member's own clock
  std::vector<std::string> names;  // of all members, a hub last; at most 255 bytes each
  bool operator==(const RecordingHead&) const = default;
};

inline constexpr std::size_t kFrameRecordBytes = 48;
inline constexpr std::size_t kMostRecordedMembers = 4096;

/// Appends a record. REQUIRES: -1 <= stream < 255, and a peer's rank from 0 on.
void write_record(const FrameRecord& record, std::vector<std::byte>& out);
/// Of bytes that begin as a frame of this version does; anything else is none.
/// `record`: its time, event, stream and peer are there already, the rest is filled in.
[[nodiscard]] bool describe_frame(std::span<const std::byte> frame, FrameRecord& record);

/// REQUIRES: 1 to kMostRecordedMembers names, self one of them.
[[nodiscard]] std::vector<std::byte> write_head(const RecordingHead& head);
/// Whether a file begins as recordings do, whatever follows.
[[nodiscard]] bool begins_as_recording(std::span<const std::byte> bytes);

struct Recording {
  RecordingHead head;
  std::vector<FrameRecord> records;  // of frames, those that are whole, in their order
  std::size_t gaps = 0;              // records of what was left out,
  std::uint64_t left_out = 0;        // and of how many it was
  std::size_t damaged = 0;           // records that are not whole
  std::size_t first_damaged_at = 0;  // byte of the first one
  std::size_t cut_off = 0;           // bytes at the end that are no whole record
};
/// RETURNS: why the bytes are no recording: another file, another version, a damaged head.
[[nodiscard]] Expected<Recording, std::string> read_recording(std::span<const std::byte> bytes);

}  // namespace isthmus
