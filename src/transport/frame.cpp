// SPDX-License-Identifier: Apache-2.0
#include "transport/frame.h"

#include <fmt/format.h>

#include <bit>
#include <memory>
#include <utility>

#include "core/check.h"
#include "core/hash.h"
#include "transport/byte_fields.h"

namespace isthmus {
namespace {

Unexpected<FrameError> refuse(std::string what) {
  return Unexpected<FrameError>(FrameError{std::move(what)});
}

constexpr std::size_t kEntryBytes = 12;

void write_header(std::span<std::byte> frame, const FrameHeader& header,
                  std::size_t payload_bytes) {
  ISTHMUS_CHECK(payload_bytes <= kMaxFramePayload, payload_bytes);
  FieldWriter out(frame);
  out.put(kFrameMagic);
  out.put(kFrameVersion);
  out.put(static_cast<std::uint16_t>(header.kind));
  out.put(static_cast<std::uint32_t>(payload_bytes));
  out.put(header.layout);
  out.put(header.epoch);
  out.put(static_cast<std::uint32_t>(header.id.fragment.value()));
  out.put(static_cast<std::uint64_t>(header.id.sent.value()));
  out.put(header.part);
  out.put(header.parts);
  out.put(header.offset);
  out.put(std::bit_cast<std::uint64_t>(header.weight));
  out.put(static_cast<std::uint64_t>(header.closed_before));
}

FrameBytes with_checksum(std::vector<std::byte> bytes) {
  const std::size_t covered = bytes.size() - kFrameTrailerBytes;
  FieldWriter(std::span(bytes).subspan(covered)).put(crc32c(std::span(bytes).first(covered)));
  return std::make_shared<const std::vector<std::byte>>(std::move(bytes));
}

}  // namespace

FrameBuilder::FrameBuilder(const FrameHeader& header, std::size_t payload_bytes)
    : bytes_(kFrameOverheadBytes + payload_bytes) {
  write_header(bytes_, header, payload_bytes);
}

std::span<std::byte> FrameBuilder::payload() {
  return std::span(bytes_).subspan(kFrameHeaderBytes, bytes_.size() - kFrameOverheadBytes);
}

FrameBytes FrameBuilder::finish() && { return with_checksum(std::move(bytes_)); }

// Each byte is written once: no zeros before the payload.
FrameBytes make_frame(const FrameHeader& header, std::span<const std::byte> payload) {
  std::vector<std::byte> bytes;
  bytes.reserve(kFrameOverheadBytes + payload.size());
  bytes.resize(kFrameHeaderBytes);
  write_header(bytes, header, payload.size());
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  bytes.resize(bytes.size() + kFrameTrailerBytes);
  return with_checksum(std::move(bytes));
}

Expected<Frame, FrameError> parse_frame(std::span<const std::byte> bytes) {
  if (bytes.size() < kFrameOverheadBytes) {
    return refuse(fmt::format("frame of {} bytes: shorter than a header", bytes.size()));
  }
  FieldReader in(bytes);
  if (const auto magic = in.get<std::uint32_t>(); magic != kFrameMagic) {
    return refuse(fmt::format("frame starts with {:#010x}, not with ISTH", magic));
  }
  if (const auto version = in.get<std::uint16_t>(); version != kFrameVersion) {
    return refuse(
        fmt::format("frame of protocol version {}; this build speaks {}", version, kFrameVersion));
  }
  const auto kind = in.get<std::uint16_t>();
  const auto payload_bytes = std::size_t{in.get<std::uint32_t>()};
  if (payload_bytes > kMaxFramePayload || payload_bytes != bytes.size() - kFrameOverheadBytes) {
    return refuse(
        fmt::format("frame of {} bytes claims a payload of {}", bytes.size(), payload_bytes));
  }
  const std::span<const std::byte> covered = bytes.first(kFrameHeaderBytes + payload_bytes);
  const std::uint32_t crc = FieldReader(bytes.subspan(covered.size())).get<std::uint32_t>();
  if (crc != crc32c(covered)) {
    return refuse("frame with a wrong checksum");
  }
  if (kind < static_cast<std::uint16_t>(FrameKind::kContribution) ||
      kind > static_cast<std::uint16_t>(kLastFrameKind)) {
    return refuse(fmt::format("frame of unknown kind {}", kind));
  }

  Frame frame;
  frame.header.kind = static_cast<FrameKind>(kind);
  frame.header.layout = in.get<std::uint32_t>();
  frame.header.epoch = in.get<std::uint32_t>();
  frame.header.id.fragment = FragmentId(static_cast<int>(in.get<std::uint32_t>()));
  frame.header.id.sent = StepIndex(static_cast<std::int64_t>(in.get<std::uint64_t>()));
  frame.header.part = in.get<std::uint32_t>();
  frame.header.parts = in.get<std::uint32_t>();
  frame.header.offset = in.get<std::uint64_t>();
  frame.header.weight = std::bit_cast<double>(in.get<std::uint64_t>());
  frame.header.closed_before = static_cast<std::int64_t>(in.get<std::uint64_t>());
  frame.payload = covered.subspan(kFrameHeaderBytes);
  if (frame.header.id.fragment.value() < 0 || frame.header.id.sent.value() < 0) {
    return refuse("frame of a negative fragment or step");
  }
  const double weight = frame.header.weight;
  const bool of_group = frame.header.kind == FrameKind::kPartial && weight > kLargestWeight &&
                        weight <= kLargestGroupWeight;
  if (!is_weight(weight) && !of_group) {
    return refuse(fmt::format("frame with a weight of {}: 0, or {} to {}", frame.header.weight,
                              kSmallestWeight, kLargestWeight));
  }
  return frame;
}

std::optional<FrameOrder> order_of(std::span<const std::byte> bytes) {
  if (bytes.size() < kFrameOverheadBytes) return std::nullopt;
  FieldReader in(bytes);
  if (in.get<std::uint32_t>() != kFrameMagic || in.get<std::uint16_t>() != kFrameVersion) {
    return std::nullopt;
  }
  FrameOrder order{.kind = static_cast<FrameKind>(in.get<std::uint16_t>()), .sent = {}};
  // Payload bytes, layout, epoch and fragment come between.
  for (int field = 0; field < 4; ++field) static_cast<void>(in.get<std::uint32_t>());
  order.sent = StepIndex(static_cast<std::int64_t>(in.get<std::uint64_t>()));
  return order;
}

std::span<const std::byte> payload_of(const FrameBytes& frame) {
  return std::span(*frame).subspan(kFrameHeaderBytes, frame->size() - kFrameOverheadBytes);
}

std::vector<std::byte> write_request(std::span<const RequestEntry> entries) {
  std::vector<std::byte> payload(entries.size() * kEntryBytes);
  FieldWriter out(payload);
  for (const RequestEntry& entry : entries) {
    out.put(static_cast<std::uint32_t>(entry.kind));
    out.put(entry.first);
    out.put(entry.count);
  }
  return payload;
}

Expected<std::vector<RequestEntry>, FrameError> read_request(std::span<const std::byte> payload) {
  if (payload.size() % kEntryBytes != 0 || payload.size() / kEntryBytes > kMaxRequestEntries) {
    return refuse(fmt::format("request of {} bytes is no list of entries", payload.size()));
  }
  FieldReader in(payload);
  std::vector<RequestEntry> entries(payload.size() / kEntryBytes);
  for (RequestEntry& entry : entries) {
    const auto kind = in.get<std::uint32_t>();
    if (kind != static_cast<std::uint32_t>(FrameKind::kContribution) &&
        kind != static_cast<std::uint32_t>(FrameKind::kResult) &&
        kind != static_cast<std::uint32_t>(FrameKind::kPartial)) {
      return refuse(fmt::format("request for frames of kind {}", kind));
    }
    entry.kind = static_cast<FrameKind>(kind);
    entry.first = in.get<std::uint32_t>();
    entry.count = in.get<std::uint32_t>();
  }
  return entries;
}

}  // namespace isthmus
