// SPDX-License-Identifier: Apache-2.0
// Whole vectors, tile by tile.
#include <fmt/format.h>

#include <algorithm>

#include "core/base/check.h"
#include "isthmus/codec.h"
#include "quant/codecs/decode_checks.h"

namespace isthmus {
namespace {

DecodeError wrong_size(const Codec& codec, std::size_t bytes, std::size_t n, std::size_t expected) {
  return {fmt::format("{}: {} bytes are no encoding of {} values, which take {}", codec.name(),
                      bytes, n, expected)};
}

// Calls decode_tile(bytes of the tile, values of the tile) for each tile in order.
template <typename DecodeTile>
Expected<void, DecodeError> for_each_tile(const Codec& codec, std::span<const std::byte> bytes,
                                          std::span<float> values, DecodeTile decode_tile) {
  const std::size_t expected = encoded_bytes(codec, values.size());
  if (bytes.size() != expected) {
    return Unexpected<DecodeError>(wrong_size(codec, bytes.size(), values.size(), expected));
  }
  std::size_t at = 0;
  for (std::size_t begin = 0; begin < values.size(); begin += kTileValues) {
    const std::size_t n = std::min(kTileValues, values.size() - begin);
    const std::size_t size = codec.encoded_bytes(n);
    auto done = decode_tile(bytes.subspan(at, size), values.subspan(begin, n));
    if (!done) {
      return Unexpected<DecodeError>(
          DecodeError{fmt::format("tile {}: {}", begin / kTileValues, done.error().what)});
    }
    at += size;
  }
  return {};
}

}  // namespace

void check_encode(const Codec& codec, std::span<const float> tile, std::span<const std::byte> out) {
  ISTHMUS_CHECK(tile.size() <= kTileValues, tile.size());
  ISTHMUS_CHECK(out.size() == codec.encoded_bytes(tile.size()), codec.name(), tile.size(),
                out.size());
}

Expected<void, DecodeError> check_decode_size(const Codec& codec, std::span<const std::byte> bytes,
                                              std::size_t n) {
  if (n > kTileValues) {
    return Unexpected<DecodeError>(DecodeError{fmt::format(
        "{}: {} values in one tile, which holds at most {}", codec.name(), n, kTileValues)});
  }
  if (bytes.size() != codec.encoded_bytes(n)) {
    return Unexpected<DecodeError>(wrong_size(codec, bytes.size(), n, codec.encoded_bytes(n)));
  }
  return {};
}

std::size_t encoded_bytes(const Codec& codec, std::size_t n) {
  const std::size_t whole = n / kTileValues;
  const std::size_t rest = n % kTileValues;
  return whole * codec.encoded_bytes(kTileValues) + (rest == 0 ? 0 : codec.encoded_bytes(rest));
}

Encoded encode(const Codec& codec, std::span<const float> values, const EncodeKey& key) {
  Encoded result{.values = values.size(), .bytes = {}};
  result.bytes.reserve(encoded_bytes(codec, values.size()));
  EncodeKey tile_key = key;
  std::size_t at = 0;
  for (std::size_t begin = 0; begin < values.size(); begin += kTileValues) {
    const std::size_t n = std::min(kTileValues, values.size() - begin);
    const std::size_t size = codec.encoded_bytes(n);
    result.bytes.resize(at + size);  // tile by tile, so that its zeros do not leave the cache
    codec.encode(values.subspan(begin, n), std::span(result.bytes).subspan(at), tile_key);
    at += size;
    ++tile_key.tile;
  }
  return result;
}

Expected<void, DecodeError> decode(const Codec& codec, std::span<const std::byte> bytes,
                                   std::span<float> out) {
  return for_each_tile(codec, bytes, out, [&](std::span<const std::byte> b, std::span<float> v) {
    return codec.decode(b, v);
  });
}

Expected<void, DecodeError> decode_add(const Codec& codec, std::span<const std::byte> bytes,
                                       std::span<float> sum) {
  return for_each_tile(codec, bytes, sum, [&](std::span<const std::byte> b, std::span<float> v) {
    return codec.decode_add(b, v);
  });
}

}  // namespace isthmus
