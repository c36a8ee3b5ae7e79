// SPDX-License-Identifier: Apache-2.0
#include "transport/exchange/round_result.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#include "core/base/check.h"
#include "transport/wire/byte_fields.h"
#include "transport/wire/contributor_bits.h"
#include "transport/wire/frame.h"

namespace isthmus {
namespace {

// fragment, sent, values, contributors, contributions, encoded
constexpr std::size_t kResultHeadBytes = 32;
constexpr std::size_t kSizesBytes = 16;  // of a contribution: its values and bytes; of an encoded
                                         // share: its weight and bytes

Unexpected<std::string> bad(const std::string& why) {
  return Unexpected<std::string>("a round's result: " + why);
}

}  // namespace

std::string round_name(const SyncId& id) {
  return fmt::format("round of step {}, fragment {}", id.sent.value(), id.fragment.value());
}

Digest128 digest_of(const Reduced& result, int members) {
  std::vector<bool> contributes(static_cast<std::size_t>(members));
  for (const WorkerId rank : result.contributors) {
    contributes[static_cast<std::size_t>(rank.value())] = true;
  }
  std::vector<std::byte> bits(bitmap_bytes(members));
  write_bitmap(contributes, bits);
  Xxh3Stream stream;
  stream.update(bits);
  stream.update(std::as_bytes(std::span(result.values)));
  for (const Encoded& each : result.contributions) stream.update(each.bytes);
  return stream.digest();
}

std::uint64_t written_bytes(const Reduced& result, std::span<const EncodedShare> encoded) {
  std::uint64_t size = kResultHeadBytes + 4 * result.contributors.size();
  if (encoded.empty()) size += 4 * result.values.size();
  for (const Encoded& each : result.contributions) size += kSizesBytes + each.bytes.size();
  for (const EncodedShare& each : encoded) size += kSizesBytes + each.bytes.size();
  return size;
}

void write_result(const SyncId& id, const Reduced& result, std::span<const EncodedShare> encoded,
                  const std::function<void(std::span<const std::byte>)>& to) {
  static_assert(std::endian::native == std::endian::little, "values are written as they lie");
  const std::span<const float> values =
      encoded.empty() ? std::span(result.values) : std::span<const float>();
  std::vector<std::byte> head(kResultHeadBytes + 4 * result.contributors.size());
  FieldWriter out(head);
  out.put(static_cast<std::uint32_t>(id.fragment.value()));
  out.put(static_cast<std::uint64_t>(id.sent.value()));
  out.put(static_cast<std::uint64_t>(values.size()));
  out.put(static_cast<std::uint32_t>(result.contributors.size()));
  out.put(static_cast<std::uint32_t>(result.contributions.size()));
  out.put(static_cast<std::uint32_t>(encoded.size()));
  for (const WorkerId rank : result.contributors) out.put(static_cast<std::uint32_t>(rank.value()));
  to(head);
  to(std::as_bytes(values));
  const auto put = [&to](std::uint64_t first, std::span<const std::byte> bytes) {
    std::array<std::byte, kSizesBytes> sizes;
    FieldWriter fields(sizes);
    fields.put(first);
    fields.put(static_cast<std::uint64_t>(bytes.size()));
    to(sizes);
    to(bytes);
  };
  for (const Encoded& each : result.contributions) put(each.values, each.bytes);
  for (const EncodedShare& each : encoded)
    put(std::bit_cast<std::uint64_t>(each.weight), each.bytes);
}

std::vector<std::byte> write_result(const SyncId& id, const Reduced& result,
                                    std::span<const EncodedShare> encoded) {
  std::vector<std::byte> bytes;
  bytes.reserve(written_bytes(result, encoded));
  write_result(id, result, encoded, [&bytes](std::span<const std::byte> piece) {
    bytes.insert(bytes.end(), piece.begin(), piece.end());
  });
  return bytes;
}

Expected<RoundResult, std::string> read_result(std::span<const std::byte> bytes, int members) {
  if (bytes.size() < kResultHeadBytes)
    return bad(fmt::format("{} bytes are too few", bytes.size()));
  FieldReader in(bytes);
  const auto fragment = in.get<std::uint32_t>();
  const auto sent = in.get<std::uint64_t>();
  const auto values = in.get<std::uint64_t>();
  const auto contributors = in.get<std::uint32_t>();
  const auto contributions = in.get<std::uint32_t>();
  const auto shares = in.get<std::uint32_t>();
  if (fragment > static_cast<std::uint32_t>(std::numeric_limits<int>::max()) ||
      sent > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    return bad(fmt::format("fragment {} of step {}", fragment, sent));
  }
  if (contributors > static_cast<std::uint32_t>(members) ||
      (contributions != 0 && contributions != contributors)) {
    return bad(fmt::format("{} contributions of {} contributors, in a run of {}", contributions,
                           contributors, members));
  }
  if (shares > static_cast<std::uint32_t>(members) ||
      (shares != 0 && (values != 0 || contributions != 0))) {
    return bad(fmt::format("{} encoded shares beside {} values and {} contributions", shares,
                           values, contributions));
  }
  std::uint64_t left = bytes.size() - kResultHeadBytes;
  const auto holds = [&left](std::uint64_t size) {
    const bool enough = size <= left;
    left -= enough ? size : 0;
    return enough;
  };
  if (!holds(std::uint64_t{4} * contributors) || values > left / 4 || !holds(4 * values)) {
    return bad(fmt::format("{} bytes do not hold {} values", bytes.size(), values));
  }
  RoundResult result{
      .id = {FragmentId(static_cast<int>(fragment)), StepIndex(static_cast<std::int64_t>(sent))},
      .reduced = {},
      .encoded = {}};
  Reduced& reduced = result.reduced;
  for (std::uint32_t k = 0; k < contributors; ++k) {
    const auto rank = in.get<std::uint32_t>();
    if (rank >= static_cast<std::uint32_t>(members) ||
        (k > 0 && static_cast<int>(rank) <= reduced.contributors.back().value())) {
      return bad(fmt::format("contributor {} is out of place", rank));
    }
    reduced.contributors.emplace_back(static_cast<int>(rank));
  }
  reduced.values.resize(values);
  const std::span<const std::byte> stored = in.get_bytes(4 * values);
  if (values != 0) std::memcpy(reduced.values.data(), stored.data(), stored.size());
  for (std::uint32_t k = 0; k < contributions; ++k) {
    if (!holds(kSizesBytes)) return bad("it ends within its contributions");
    const auto encoded_values = in.get<std::uint64_t>();
    const auto encoded_bytes = in.get<std::uint64_t>();
    if (!holds(encoded_bytes)) return bad("it ends within a contribution");
    const std::span<const std::byte> encoded = in.get_bytes(encoded_bytes);
    reduced.contributions.push_back({encoded_values, {encoded.begin(), encoded.end()}});
  }
  for (std::uint32_t k = 0; k < shares; ++k) {
    if (!holds(kSizesBytes)) return bad("it ends within its shares");
    const auto weight = std::bit_cast<double>(in.get<std::uint64_t>());
    const auto size = in.get<std::uint64_t>();
    if (!is_weight(weight) || weight == 0) return bad(fmt::format("a share of weight {}", weight));
    if (!holds(size)) return bad("it ends within a share");
    const std::span<const std::byte> share = in.get_bytes(size);
    result.encoded.push_back({weight, {share.begin(), share.end()}});
  }
  if (left != 0) return bad(fmt::format("{} bytes follow it", left));
  return result;
}

namespace {

bool fits(const Reduced& result, const AskedRound& asked) {
  if (asked.kind != ReductionKind::kCollect) {
    return result.contributions.empty() && (result.values.size() == asked.values);
  }
  return result.values.empty() && result.contributions.size() == result.contributors.size() &&
         std::ranges::all_of(result.contributions, [&](const Encoded& each) {
           return each.values == asked.values && each.bytes.size() == asked.bytes;
         });
}

Expected<void, std::string> decode_shares(Reduced& result, std::span<const EncodedShare> encoded,
                                          const AskedRound& asked, int members) {
  const auto no = [](std::string why) { return Unexpected<std::string>(std::move(why)); };
  const ReductionKind kind = resolve_reduction(asked.kind, *asked.codec, members);
  const std::size_t shares = kind == ReductionKind::kReduce ? 1 : result.contributors.size();
  if (kind == ReductionKind::kCollect || encoded.size() != shares) {
    return no(fmt::format("has come encoded in {} shares of {} contributors", encoded.size(),
                          result.contributors.size()));
  }
  std::vector<WeightedBytes> vectors;
  for (const EncodedShare& share : encoded) {
    if (share.bytes.size() != encoded_bytes(*asked.codec, asked.values)) {
      return no(fmt::format("has come encoded in {} bytes, of {} values", share.bytes.size(),
                            asked.values));
    }
    vectors.push_back({share.bytes, share.weight});
  }
  result.values.resize(asked.values);
  if (kind == ReductionKind::kReduce) {
    if (auto ok = decode(*asked.codec, vectors[0].bytes, result.values); !ok) {
      return no("does not decode: " + ok.error().what);
    }
  } else if (auto ok = reduce_tiles(*asked.codec, vectors, result.values); !ok) {
    return no("does not decode: " + ok.error().what);
  }
  return {};
}

}  // namespace

AskedRound asked_of(const Contribution& contribution) {
  return {.kind = contribution.kind,
          .values = contribution.encoded.values,
          .bytes = contribution.encoded.bytes.size(),
          .codec = contribution.codec};
}

Expected<Reduced, std::string> as_a_member_has_it(Reduced result,
                                                  std::span<const EncodedShare> encoded,
                                                  const AskedRound& asked, int members) {
  if (!encoded.empty()) {
    if (auto ok = decode_shares(result, encoded, asked, members); !ok) {
      return Unexpected<std::string>(ok.error());
    }
  }
  if (!fits(result, asked)) {
    return Unexpected<std::string>(fmt::format(
        "has come with other sizes than {} values in {} bytes", asked.values, asked.bytes));
  }
  return result;
}

}  // namespace isthmus
