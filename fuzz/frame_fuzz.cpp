// SPDX-License-Identifier: Apache-2.0
// Bytes as a frame, as a request, and as a talk with a member that has three rounds open: the input
// is cut into records of 2 bytes (sender and length) and a body, whose magic, version, length and
// checksum are put right so that the fields reach the protocol. Checked: no crash, no read outside,
// what is parsed writes back to the same bytes, and no round becomes final unless it is whole.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "core/base/hash.h"
#include "transport/exchange/exchange_engine.h"
#include "transport/wire/frame.h"

namespace {

using namespace isthmus;

void require(bool condition) {
  if (!condition) std::abort();
}

void parse(std::span<const std::byte> bytes) {
  if (const auto frame = parse_frame(bytes)) {
    const FrameBytes again = make_frame(frame->header, frame->payload);
    require(std::ranges::equal(*again, bytes));
  }
  if (const auto entries = read_request(bytes)) {
    require(std::ranges::equal(write_request(*entries), bytes));
  }
}

/// A gather and a collect of one part, and a reduce in which each member owns one tile.
std::size_t values_of(const SyncId& id) {
  return id.fragment.value() == 0 ? 2 * kTileValues + 1 : 300;
}

/// `body` as a frame whose outer form is right: fields from the body, its last byte the kind, what
/// lies between the payload.
FrameBytes mended(std::span<const std::byte> body) {
  const std::byte kind_byte = body.empty() ? std::byte{0} : body.back();
  body = body.first(body.empty() ? 0 : body.size() - 1);
  std::vector<std::byte> bytes(kFrameOverheadBytes);
  const std::size_t fields = std::min(body.size(), kFrameHeaderBytes - 12);
  std::ranges::copy(body.first(fields), bytes.begin() + 12);
  const std::span<const std::byte> payload = body.subspan(fields);
  bytes.insert(bytes.begin() + kFrameHeaderBytes, payload.begin(), payload.end());
  const auto put32 = [&](std::size_t at, std::uint32_t value) {
    std::memcpy(bytes.data() + at, &value, sizeof value);
  };
  put32(0, kFrameMagic);
  const std::uint32_t kind = 1 + std::to_integer<std::uint32_t>(kind_byte) % 12;
  put32(4, kFrameVersion | kind << 16);
  put32(8, static_cast<std::uint32_t>(payload.size()));
  put32(bytes.size() - kFrameTrailerBytes,
        crc32c(std::span(bytes).first(bytes.size() - kFrameTrailerBytes)));
  return std::make_shared<const std::vector<std::byte>>(std::move(bytes));
}

void talk(std::span<const std::byte> input, bool elastic) {
  const std::shared_ptr<const Codec> codec = make_codec("int8:256");
  // Member 0 decides who is there, member 1 is told; frames come from the other two.
  const int self = elastic ? 1 : 0;
  ExchangeEngine engine({.self = WorkerId(self), .members = 3, .exchange = {.elastic = elastic}});
  const SyncId ids[] = {
      {FragmentId(0), StepIndex(1)}, {FragmentId(1), StepIndex(1)}, {FragmentId(2), StepIndex(1)}};
  constexpr ReductionKind kKinds[] = {ReductionKind::kReduce, ReductionKind::kGather,
                                      ReductionKind::kCollect};
  Outbox out;
  for (const SyncId& id : ids) {
    const std::vector<float> x(values_of(id), 1.0f);
    const SharedContribution own = share({.id = id,
                                          .encoded = encode(*codec, x),
                                          .codec = codec,
                                          .weight = 1,
                                          .kind = kKinds[id.fragment.value()]});
    Round round(own, engine.rounds().place({FragmentId(0), StepIndex(1)}));
    engine.begin(std::move(round), true, elastic ? std::optional(own) : std::nullopt, TimePoint{},
                 out);
  }
  TimePoint now{};
  while (input.size() >= 3) {
    const WorkerId from((self + 1 + std::to_integer<int>(input[0]) % 2) % 3);
    const std::size_t length =
        std::min(input.size() - 3, std::to_integer<std::size_t>(input[1]) +
                                       256 * std::to_integer<std::size_t>(input[2]));
    engine.receive(from, mended(input.subspan(3, length)), now, out);
    input = input.subspan(3 + length);
    now += std::chrono::milliseconds(700);
    engine.tick(now, out);
    out.clear();
  }
  for (const SyncId& id : ids) {
    if (engine.ready(id)) {
      if (const auto result = engine.take(id)) {
        const bool collected = id.fragment == FragmentId(2);
        require(result->values.size() == (collected ? 0 : values_of(id)));
        for (const Encoded& theirs : result->contributions) {
          require(theirs.bytes.size() == encoded_bytes(*codec, values_of(id)));
        }
      }
    } else {
      require(!engine.describe(id).empty());
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  parse(bytes);
  for (const bool elastic : {false, true}) {
    talk(bytes, elastic);
  }
  return 0;
}
