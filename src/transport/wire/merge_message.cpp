// SPDX-License-Identifier: Apache-2.0
#include "transport/wire/merge_message.h"

#include <fmt/format.h>

#include <bit>
#include <limits>
#include <utility>

#include "core/base/check.h"
#include "isthmus/errors.h"
#include "transport/wire/byte_fields.h"
#include "transport/wire/frame.h"

namespace isthmus {
namespace {

constexpr std::size_t kOfferHeadBytes = 4 + 5 * 8 + 2 * 4;
constexpr std::size_t kMergeHeadBytes = 3 * 8 + 3 * 4;
constexpr std::size_t kMergedOfferBytes = 4 + 3 * 8;
constexpr auto kMostFragment = static_cast<std::uint32_t>(std::numeric_limits<int>::max());

Unexpected<std::string> no_merge_message(const char* of, const std::string& why) {
  return Unexpected<std::string>(fmt::format("{} is damaged: {}", of, why));
}

std::uint64_t unsigned_of(std::int64_t value) { return static_cast<std::uint64_t>(value); }

/// The codec that the bytes name, and whether the encoding has its size.
Expected<std::shared_ptr<const Codec>, std::string> codec_for(const std::string& name,
                                                              const Encoded& encoded) {
  std::shared_ptr<const Codec> codec;
  try {
    codec = make_codec(name);
  } catch (const ConfigError& error) {
    return Unexpected<std::string>(error.what());
  }
  // A tile takes a byte at least. This comes first: a product with more tiles may overflow.
  if (encoded.values / kTileValues > encoded.bytes.size() ||
      encoded_bytes(*codec, encoded.values) != encoded.bytes.size()) {
    return Unexpected<std::string>(fmt::format("{} values in {} do not take {} bytes",
                                               encoded.values, name, encoded.bytes.size()));
  }
  return codec;
}

}  // namespace

std::vector<std::byte> write_offer(const Offer& offer) {
  ISTHMUS_CHECK(offer.rule.grace.has_value());
  const std::string codec = offer.codec->name();
  std::vector<std::byte> bytes(kOfferHeadBytes + codec.size() + offer.encoded.bytes.size());
  FieldWriter out(bytes);
  out.put(static_cast<std::uint32_t>(offer.id.fragment.value()));
  out.put(unsigned_of(offer.id.sent.value()));
  out.put(std::bit_cast<std::uint64_t>(offer.weight));
  out.put(unsigned_of(offer.tokens));
  out.put(unsigned_of(offer.rule.grace->count()));
  out.put(static_cast<std::uint64_t>(offer.encoded.values));
  out.put(static_cast<std::uint32_t>(offer.rule.quorum));
  out.put(static_cast<std::uint32_t>(codec.size()));
  out.put_text(codec);
  out.put_bytes(offer.encoded.bytes);
  return bytes;
}

Expected<Offer, std::string> read_offer(std::span<const std::byte> bytes) {
  const char* const kWhat = "an offer";
  if (bytes.size() < kOfferHeadBytes) {
    return no_merge_message(kWhat, fmt::format("{} bytes are too few", bytes.size()));
  }
  FieldReader in(bytes);
  const auto fragment = in.get<std::uint32_t>();
  const auto sent = static_cast<std::int64_t>(in.get<std::uint64_t>());
  const auto weight = std::bit_cast<double>(in.get<std::uint64_t>());
  const auto tokens = static_cast<std::int64_t>(in.get<std::uint64_t>());
  const auto grace = static_cast<std::int64_t>(in.get<std::uint64_t>());
  const auto values = in.get<std::uint64_t>();
  const auto quorum = in.get<std::uint32_t>();
  const auto name = in.get<std::uint32_t>();
  if (fragment > kMostFragment || sent < 1 || tokens < 0 || grace < 0 || quorum < 1 ||
      quorum > kMostFragment || weight == 0 || !is_weight(weight) ||
      name > bytes.size() - kOfferHeadBytes) {
    return no_merge_message(kWhat, "a field has a value that none can have");
  }
  const std::string codec = in.get_text(name);
  const std::span<const std::byte> rest = in.get_bytes(bytes.size() - kOfferHeadBytes - name);
  Offer offer{
      .id = {FragmentId(static_cast<int>(fragment)), StepIndex(sent)},
      .encoded = {.values = static_cast<std::size_t>(values), .bytes = {rest.begin(), rest.end()}},
      .codec = nullptr,
      .weight = weight,
      .tokens = tokens,
      .rule = {.quorum = static_cast<int>(quorum), .grace = Duration(grace)}};
  auto known = codec_for(codec, offer.encoded);
  if (!known) return no_merge_message(kWhat, known.error());
  offer.codec = *std::move(known);
  return offer;
}

std::vector<std::byte> write_merge(const EncodedMerge& merge) {
  const std::vector<MergedOffer>& offers = merge.merge.offers;
  std::vector<std::byte> bytes(kMergeHeadBytes + offers.size() * kMergedOfferBytes +
                               merge.codec.size() + merge.encoded.bytes.size());
  FieldWriter out(bytes);
  out.put(unsigned_of(merge.merge.number));
  out.put(unsigned_of(merge.merge.step.value()));
  out.put(static_cast<std::uint64_t>(merge.encoded.values));
  out.put(static_cast<std::uint32_t>(merge.merge.fragment.value()));
  out.put(static_cast<std::uint32_t>(offers.size()));
  out.put(static_cast<std::uint32_t>(merge.codec.size()));
  for (const MergedOffer& offer : offers) {
    out.put(static_cast<std::uint32_t>(offer.worker.value()));
    out.put(unsigned_of(offer.sent.value()));
    out.put(unsigned_of(offer.tokens));
    out.put(std::bit_cast<std::uint64_t>(offer.weight));
  }
  out.put_text(merge.codec);
  out.put_bytes(merge.encoded.bytes);
  return bytes;
}

namespace {

constexpr const char* kAMerge = "a merge";

struct MergeHead {
  Merge merge;
  std::uint64_t values = 0;
  std::string codec;
  std::span<const std::byte> encoded;
};

Expected<MergeHead, std::string> read_head(std::span<const std::byte> bytes) {
  if (bytes.size() < kMergeHeadBytes) {
    return no_merge_message(kAMerge, fmt::format("{} bytes are too few", bytes.size()));
  }
  FieldReader in(bytes);
  MergeHead head;
  head.merge.number = static_cast<std::int64_t>(in.get<std::uint64_t>());
  head.merge.step = StepIndex(static_cast<std::int64_t>(in.get<std::uint64_t>()));
  head.values = in.get<std::uint64_t>();
  const auto fragment = in.get<std::uint32_t>();
  const auto offers = in.get<std::uint32_t>();
  const auto name = in.get<std::uint32_t>();
  const std::size_t rest = bytes.size() - kMergeHeadBytes;
  if (head.merge.number < 1 || head.merge.step < StepIndex(1) || fragment > kMostFragment ||
      offers < 1 || offers > rest / kMergedOfferBytes || name > rest - offers * kMergedOfferBytes) {
    return no_merge_message(kAMerge, "a field has a value that none can have");
  }
  head.merge.fragment = FragmentId(static_cast<int>(fragment));
  for (std::uint32_t i = 0; i < offers; ++i) {
    const auto worker = in.get<std::uint32_t>();
    if (worker > kMostFragment) {
      return no_merge_message(kAMerge, fmt::format("there is no worker {}", worker));
    }
    MergedOffer offer;
    offer.worker = WorkerId(static_cast<int>(worker));
    offer.sent = StepIndex(static_cast<std::int64_t>(in.get<std::uint64_t>()));
    offer.tokens = static_cast<std::int64_t>(in.get<std::uint64_t>());
    offer.weight = std::bit_cast<double>(in.get<std::uint64_t>());
    head.merge.offers.push_back(offer);
  }
  head.codec = in.get_text(name);
  head.encoded = in.get_bytes(rest - offers * kMergedOfferBytes - name);
  head.merge.bytes = head.encoded.size();
  return head;
}

}  // namespace

Expected<Merge, std::string> read_merge(std::span<const std::byte> bytes) {
  Expected<MergeHead, std::string> head = read_head(bytes);
  if (!head) return Unexpected<std::string>(head.error());
  const Encoded encoded{.values = static_cast<std::size_t>(head->values),
                        .bytes = {head->encoded.begin(), head->encoded.end()}};
  const auto known = codec_for(head->codec, encoded);
  if (!known) return no_merge_message(kAMerge, known.error());
  head->merge.values.resize(encoded.values);
  if (const auto ok = decode(**known, encoded.bytes, head->merge.values); !ok) {
    return no_merge_message(kAMerge, ok.error().what);
  }
  return std::move(head->merge);
}

Expected<Merge, std::string> read_merge_head(std::span<const std::byte> bytes) {
  Expected<MergeHead, std::string> head = read_head(bytes);
  if (!head) return Unexpected<std::string>(head.error());
  return std::move(head->merge);
}

std::vector<std::byte> write_follow(std::int64_t last) {
  std::vector<std::byte> bytes(8);
  FieldWriter out(bytes);
  out.put(unsigned_of(last));
  return bytes;
}

Expected<std::int64_t, std::string> read_follow(std::span<const std::byte> bytes) {
  constexpr const char* kWhat = "the number of a merge";
  if (bytes.size() != 8) {
    return no_merge_message(kWhat, fmt::format("it has {} bytes", bytes.size()));
  }
  FieldReader in(bytes);
  const auto last = static_cast<std::int64_t>(in.get<std::uint64_t>());
  if (last < 0) return no_merge_message(kWhat, "it is below 0");
  return last;
}

}  // namespace isthmus
