// SPDX-License-Identifier: Apache-2.0
#include "transport/wire/frame_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/base/hash.h"
#include "transport/wire/byte_fields.h"

namespace isthmus {
namespace {

constexpr std::uint32_t kRecordMagic = 0x46525349;  // "ISRF" as bytes in the file
constexpr std::uint16_t kVersion = 1;
constexpr std::size_t kRecordHeadBytes = 20;  // before the names
constexpr std::size_t kChecksum = 4;
constexpr std::size_t kLongestRecordName = 255;
constexpr std::uint8_t kNoStream = 255;

Unexpected<std::string> no(std::string why) { return Unexpected<std::string>(std::move(why)); }

bool is_kind(std::uint16_t kind) {
  return kind >= static_cast<std::uint16_t>(FrameKind::kContribution) &&
         kind <= static_cast<std::uint16_t>(kLastFrameKind);
}

/// RETURNS: whether it is whole, and of a member that there is.
bool read_record(std::span<const std::byte> bytes, std::size_t members, FrameRecord& record) {
  const std::span<const std::byte> covered = bytes.first(kFrameRecordBytes - kChecksum);
  if (FieldReader(bytes.subspan(covered.size())).get<std::uint32_t>() != crc32c(covered)) {
    return false;
  }
  FieldReader in(covered);
  const auto time = in.get<std::uint64_t>();
  const auto sent = in.get<std::uint64_t>();
  const auto fragment = in.get<std::uint32_t>();
  record.part = in.get<std::uint32_t>();
  record.epoch = in.get<std::uint32_t>();
  record.bytes = in.get<std::uint32_t>();
  record.crc = in.get<std::uint32_t>();
  const auto kind = in.get<std::uint16_t>();
  const auto event = in.get<std::uint8_t>();
  const auto stream = in.get<std::uint8_t>();
  const auto peer = in.get<std::uint32_t>();
  if (time > 0x7fffffffffffffffu || sent > 0x7fffffffffffffffu || fragment > 0x7fffffffu ||
      !is_kind(kind) || event < 1 || event > 5 || peer >= members) {
    return false;
  }
  record.time_ns = static_cast<std::int64_t>(time);
  record.id = {FragmentId(static_cast<int>(fragment)), StepIndex(static_cast<std::int64_t>(sent))};
  record.kind = static_cast<FrameKind>(kind);
  record.event = static_cast<FrameEvent>(event);
  record.stream = stream == kNoStream ? -1 : stream;
  record.peer = WorkerId(static_cast<int>(peer));
  return true;
}

}  // namespace

void write_record(const FrameRecord& record, std::vector<std::byte>& out) {
  ISTHMUS_CHECK(record.stream >= -1, record.stream);
  ISTHMUS_CHECK(record.stream < kNoStream, record.stream);
  ISTHMUS_CHECK(record.peer.value() >= 0, record.peer.value());
  const std::size_t at = out.size();
  out.resize(at + kFrameRecordBytes);
  const std::span<std::byte> bytes = std::span(out).subspan(at);
  FieldWriter fields(bytes);
  fields.put(static_cast<std::uint64_t>(record.time_ns));
  fields.put(static_cast<std::uint64_t>(record.id.sent.value()));
  fields.put(static_cast<std::uint32_t>(record.id.fragment.value()));
  fields.put(record.part);
  fields.put(record.epoch);
  fields.put(record.bytes);
  fields.put(record.crc);
  fields.put(static_cast<std::uint16_t>(record.kind));
  fields.put(static_cast<std::uint8_t>(record.event));
  fields.put(record.stream < 0 ? kNoStream : static_cast<std::uint8_t>(record.stream));
  fields.put(static_cast<std::uint32_t>(record.peer.value()));
  fields.put(crc32c(bytes.first(kFrameRecordBytes - kChecksum)));
}

bool describe_frame(std::span<const std::byte> frame, FrameRecord& record) {
  const std::optional<FrameOrder> order = order_of(frame);
  if (!order || !is_kind(static_cast<std::uint16_t>(order->kind)) || order->sent.value() < 0) {
    return false;
  }
  // Behind magic, version, kind, payload bytes and layout (WIRE_FORMAT.md).
  FieldReader in(frame.subspan(16));
  record.kind = order->kind;
  record.epoch = in.get<std::uint32_t>();
  const auto fragment = in.get<std::uint32_t>();
  static_cast<void>(in.get<std::uint64_t>());  // the step
  record.part = in.get<std::uint32_t>();
  record.id = {FragmentId(static_cast<int>(fragment & 0x7fffffffu)), order->sent};
  record.bytes = static_cast<std::uint32_t>(frame.size());
  record.crc = FieldReader(frame.last(kFrameTrailerBytes)).get<std::uint32_t>();
  return true;
}

std::vector<std::byte> write_head(const RecordingHead& head) {
  ISTHMUS_CHECK(!head.names.empty());
  ISTHMUS_CHECK(head.names.size() <= kMostRecordedMembers, head.names.size());
  ISTHMUS_CHECK(head.self.value() >= 0, head.self.value());
  ISTHMUS_CHECK(static_cast<std::size_t>(head.self.value()) < head.names.size(), head.self.value());
  std::size_t size = kRecordHeadBytes + kChecksum;
  for (const std::string& name : head.names) size += 1 + std::min(name.size(), kLongestRecordName);
  std::vector<std::byte> bytes(size);
  FieldWriter out(bytes);
  out.put(kRecordMagic);
  out.put(kVersion);
  out.put(static_cast<std::uint16_t>(head.names.size()));
  out.put(static_cast<std::uint32_t>(head.self.value()));
  out.put(static_cast<std::uint64_t>(head.started_ms));
  for (const std::string& name : head.names) {
    const std::string_view kept = std::string_view(name).substr(0, kLongestRecordName);
    out.put(static_cast<std::uint8_t>(kept.size()));
    out.put_text(kept);
  }
  out.put(crc32c(std::span(bytes).first(size - kChecksum)));
  return bytes;
}

bool begins_as_recording(std::span<const std::byte> bytes) {
  return bytes.size() >= sizeof kRecordMagic &&
         FieldReader(bytes).get<std::uint32_t>() == kRecordMagic;
}

Expected<Recording, std::string> read_recording(std::span<const std::byte> bytes) {
  if (!begins_as_recording(bytes)) return no("is no recording of frames");
  if (bytes.size() < kRecordHeadBytes) return no("ends within its head: nothing has been recorded");
  FieldReader in(bytes);
  static_cast<void>(in.get<std::uint32_t>());
  if (const auto version = in.get<std::uint16_t>(); version != kVersion) {
    return no(fmt::format("is a recording of version {}; this build reads {}", version, kVersion));
  }
  Recording recording;
  const auto members = std::size_t{in.get<std::uint16_t>()};
  const auto self = in.get<std::uint32_t>();
  const auto started = in.get<std::uint64_t>();
  std::size_t at = kRecordHeadBytes;
  for (std::size_t m = 0; m < members; ++m) {
    if (at >= bytes.size()) return no("ends within its head: nothing has been recorded");
    const auto length = std::to_integer<std::size_t>(bytes[at]);
    if (bytes.size() - at - 1 < length) {
      return no("ends within its head: nothing has been recorded");
    }
    FieldReader name(bytes.subspan(at + 1));
    recording.head.names.push_back(name.get_text(length));
    at += 1 + length;
  }
  if (bytes.size() - at < kChecksum) return no("ends within its head: nothing has been recorded");
  if (FieldReader(bytes.subspan(at)).get<std::uint32_t>() != crc32c(bytes.first(at)) ||
      members == 0 || members > kMostRecordedMembers || self >= members ||
      started > 0x7fffffffffffffffu) {
    return no("has a damaged header: the recording member is unknown");
  }
  recording.head.self = WorkerId(static_cast<int>(self));
  recording.head.started_ms = static_cast<std::int64_t>(started);
  at += kChecksum;
  recording.records.reserve((bytes.size() - at) / kFrameRecordBytes);
  for (; bytes.size() - at >= kFrameRecordBytes; at += kFrameRecordBytes) {
    FrameRecord record;
    if (read_record(bytes.subspan(at, kFrameRecordBytes), members, record)) {
      if (record.event == FrameEvent::kLeftOut) {
        ++recording.gaps;
        recording.left_out += record.part;
      } else {
        recording.records.push_back(record);
      }
    } else if (recording.damaged++ == 0) {
      recording.first_damaged_at = at;
    }
  }
  recording.cut_off = bytes.size() - at;
  return recording;
}

}  // namespace isthmus
