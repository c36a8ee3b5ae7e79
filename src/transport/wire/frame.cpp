// SPDX-License-Identifier: Apache-2.0
#include "transport/wire/frame.h"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>

#include "core/base/check.h"
#include "core/base/hash.h"
#include "transport/wire/byte_fields.h"

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

/// REQUIRES: a header that is one.
FrameHeader read_header(std::span<const std::byte> head) {
  FieldReader in(head);
  static_cast<void>(in.get_bytes(sizeof kFrameMagic + sizeof kFrameVersion));
  FrameHeader header;
  header.kind = static_cast<FrameKind>(in.get<std::uint16_t>());
  static_cast<void>(in.get<std::uint32_t>());  // payload bytes
  header.layout = in.get<std::uint32_t>();
  header.epoch = in.get<std::uint32_t>();
  header.id.fragment = FragmentId(static_cast<int>(in.get<std::uint32_t>()));
  header.id.sent = StepIndex(static_cast<std::int64_t>(in.get<std::uint64_t>()));
  header.part = in.get<std::uint32_t>();
  header.parts = in.get<std::uint32_t>();
  header.offset = in.get<std::uint64_t>();
  header.weight = std::bit_cast<double>(in.get<std::uint64_t>());
  header.closed_before = static_cast<std::int64_t>(in.get<std::uint64_t>());
  return header;
}

std::optional<FrameOrder> order_in(std::span<const std::byte> head) {
  FieldReader in(head);
  if (in.get<std::uint32_t>() != kFrameMagic || in.get<std::uint16_t>() != kFrameVersion) {
    return std::nullopt;
  }
  const FrameHeader header = read_header(head);
  return FrameOrder{.kind = header.kind, .sent = header.id.sent};
}

/// A frame that lies in a row. Not a vector: that would write zeros first.
class WholeFrame final : public FrameStore {
 public:
  WholeFrame(std::unique_ptr<std::byte[]> bytes, std::size_t size)
      : bytes_(std::move(bytes)), size_(size) {}
  [[nodiscard]] std::size_t size() const override { return size_; }
  [[nodiscard]] std::span<const std::byte> bytes() const override { return {bytes_.get(), size_}; }

 private:
  std::unique_ptr<std::byte[]> bytes_;
  std::size_t size_;
};

/// A frame whose payload belongs to a caller. For several receivers its checksum is computed once.
class FrameAround final : public FrameStore {
 public:
  FrameAround(const FrameHeader& header, std::span<const std::byte> payload,
              std::shared_ptr<const void> owner)
      : payload_(payload), owner_(std::move(owner)) {
    write_header(head_, header, payload.size());
  }
  [[nodiscard]] std::size_t size() const override { return kFrameOverheadBytes + payload_.size(); }
  [[nodiscard]] std::span<const std::byte> bytes() const override {
    std::call_once(put_together_, [this] {
      whole_ = std::make_unique_for_overwrite<std::byte[]>(size());
      copy_to({whole_.get(), size()});
    });
    return {whole_.get(), size()};
  }
  [[nodiscard]] std::span<const std::byte> range(std::size_t first,
                                                 std::size_t count) const override {
    if (first + count <= kFrameHeaderBytes) return std::span(head_).subspan(first, count);
    if (first >= kFrameHeaderBytes && first + count <= kFrameHeaderBytes + payload_.size()) {
      return payload_.subspan(first - kFrameHeaderBytes, count);
    }
    return bytes().subspan(first, count);
  }
  [[nodiscard]] bool in_pieces() const override { return true; }
  void copy_to(std::span<std::byte> out) const override {
    ISTHMUS_CHECK(out.size() == size(), out.size(), size());
    std::memcpy(out.data(), head_.data(), head_.size());
    const std::span<std::byte> body = out.subspan(head_.size(), payload_.size());
    std::uint64_t sum = sum_.load(std::memory_order_relaxed);
    if (sum != kNoSum) {
      if (!body.empty()) std::memcpy(body.data(), payload_.data(), body.size());
    } else {
      sum = crc32c_copy(payload_, body, crc32c(head_));
      sum_.store(sum, std::memory_order_relaxed);
    }
    FieldWriter(out.last(kFrameTrailerBytes)).put(static_cast<std::uint32_t>(sum));
  }

 private:
  static constexpr std::uint64_t kNoSum = ~std::uint64_t{0};  // a checksum has 32 bits

  std::array<std::byte, kFrameHeaderBytes> head_;
  std::span<const std::byte> payload_;
  std::shared_ptr<const void> owner_;  // of the payload; with the frames of its other parts
  mutable std::atomic<std::uint64_t> sum_{kNoSum};
  mutable std::once_flag put_together_;
  mutable std::unique_ptr<std::byte[]> whole_;
};

}  // namespace

FrameBuilder::FrameBuilder(const FrameHeader& header, std::size_t payload_bytes)
    : bytes_(std::make_unique_for_overwrite<std::byte[]>(kFrameOverheadBytes + payload_bytes)),
      size_(kFrameOverheadBytes + payload_bytes) {
  write_header({bytes_.get(), size_}, header, payload_bytes);
}

std::span<std::byte> FrameBuilder::payload() {
  return {bytes_.get() + kFrameHeaderBytes, size_ - kFrameOverheadBytes};
}

FrameBytes FrameBuilder::finish() && {
  const std::span<std::byte> bytes(bytes_.get(), size_);
  const std::span<std::byte> covered = bytes.first(size_ - kFrameTrailerBytes);
  FieldWriter(bytes.last(kFrameTrailerBytes)).put(crc32c(covered));
  return FrameBytes(std::make_shared<const WholeFrame>(std::move(bytes_), size_));
}

FrameBytes make_frame(const FrameHeader& header, std::span<const std::byte> payload) {
  FrameBuilder builder(header, payload.size());
  if (!payload.empty()) std::memcpy(builder.payload().data(), payload.data(), payload.size());
  return std::move(builder).finish();
}

FrameBytes make_frame_around(const FrameHeader& header, std::span<const std::byte> payload,
                             std::shared_ptr<const void> owner) {
  return FrameBytes(std::make_shared<const FrameAround>(header, payload, std::move(owner)));
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

  const Frame frame{.header = read_header(bytes.first(kFrameHeaderBytes)),
                    .payload = covered.subspan(kFrameHeaderBytes)};
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
  return order_in(bytes.first(kFrameHeaderBytes));
}

std::optional<FrameOrder> order_of(const FrameBytes& frame) {
  if (frame->size() < kFrameOverheadBytes) return std::nullopt;
  return order_in(frame->range(0, kFrameHeaderBytes));
}

Frame accepted_frame(const FrameBytes& frame) {
  return {.header = read_header(frame->range(0, kFrameHeaderBytes)), .payload = payload_of(frame)};
}

std::span<const std::byte> payload_of(const FrameBytes& frame) {
  return frame->range(kFrameHeaderBytes, frame->size() - kFrameOverheadBytes);
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
