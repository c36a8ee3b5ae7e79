// SPDX-License-Identifier: Apache-2.0
#include "record/tensorboard_event.h"

#include <fmt/format.h>

#include <bit>
#include <charconv>

#include "core/base/hash.h"
#include "core/base/storage.h"

namespace isthmus::report {
namespace {

enum WireType : std::uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

template <typename Unsigned>
void append_little_endian(std::string& out, Unsigned value) {
  for (std::size_t byte = 0; byte < sizeof value; ++byte) {
    out += static_cast<char>((value >> (8 * byte)) & 0xFF);
  }
}

void append_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) {
    out += static_cast<char>((value & 0x7F) | 0x80);
  }
  out += static_cast<char>(value);
}

/// A protobuf message under construction, fields in the order of the calls.
class Message {
 public:
  Message& integer(std::uint32_t field, std::int64_t value) {
    key(field, kVarint);
    append_varint(bytes_, static_cast<std::uint64_t>(value));
    return *this;
  }
  Message& real64(std::uint32_t field, double value) {
    key(field, kFixed64);
    append_little_endian(bytes_, std::bit_cast<std::uint64_t>(value));
    return *this;
  }
  Message& real32(std::uint32_t field, float value) {
    key(field, kFixed32);
    append_little_endian(bytes_, std::bit_cast<std::uint32_t>(value));
    return *this;
  }
  Message& text(std::uint32_t field, std::string_view value) {
    key(field, kBytes);
    append_varint(bytes_, value.size());
    bytes_ += value;
    return *this;
  }
  Message& message(std::uint32_t field, const Message& inner) { return text(field, inner.bytes_); }
  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  void key(std::uint32_t field, WireType type) { append_varint(bytes_, field << 3 | type); }
  std::string bytes_;
};

/// Event{1 wall_time, 2 step}; a step of 0 is the default and stays away.
Message event(double wall_s, std::int64_t step) {
  Message event;
  event.real64(1, wall_s);
  if (step != 0) {
    event.integer(2, step);
  }
  return event;
}

constexpr std::string_view kPrefix = "events.out.tfevents.";

}  // namespace

std::uint32_t masked_crc32c(std::string_view bytes) {
  constexpr std::uint32_t kMaskDelta = 0xa282ead8;
  return std::rotr(crc32c(as_bytes(bytes)), 15) + kMaskDelta;
}

std::string tfrecord(std::string_view payload) {
  std::string record;
  append_little_endian(record, std::uint64_t{payload.size()});
  append_little_endian(record, masked_crc32c(record));
  record += payload;
  append_little_endian(record, masked_crc32c(payload));
  return record;
}

std::string file_version_record(double wall_s) {
  return tfrecord(event(wall_s, 0).text(3, "brain.Event:2").bytes());
}

std::string session_start_record(double wall_s, std::int64_t step) {
  constexpr std::int64_t kStart = 1;  // SessionLog.START
  return tfrecord(event(wall_s, step).message(7, Message().integer(1, kStart)).bytes());
}

std::string scalars_record(double wall_s, std::int64_t step, std::span<const Scalar> scalars) {
  Message summary;
  for (const Scalar& scalar : scalars) {
    summary.message(1, Message().text(1, scalar.tag).real32(2, scalar.value));
  }
  return tfrecord(event(wall_s, step).message(5, summary).bytes());
}

std::string text_record(double wall_s, std::int64_t step, std::string_view name,
                        std::string_view markdown) {
  constexpr std::int64_t kString = 7;  // DT_STRING
  const Message shape = Message().message(2, Message().integer(1, 1));
  const Message tensor = Message().integer(1, kString).message(2, shape).text(8, markdown);
  const Message metadata = Message().message(1, Message().text(1, "text"));
  const Message value = Message()
                            .text(1, fmt::format("{}/text_summary", name))
                            .message(8, tensor)
                            .message(9, metadata);
  return tfrecord(event(wall_s, step).message(5, Message().message(1, value)).bytes());
}

std::string event_file_name(std::int64_t unix_s) {
  return fmt::format("{}{:010}.isthmus.0", kPrefix, unix_s);
}

std::int64_t event_file_time(std::string_view name) {
  if (!name.starts_with(kPrefix)) {
    return -1;
  }
  name.remove_prefix(kPrefix.size());
  std::int64_t time = -1;
  const auto result = std::from_chars(name.data(), name.data() + name.size(), time);
  return result.ec == std::errc() ? time : -1;
}

}  // namespace isthmus::report
