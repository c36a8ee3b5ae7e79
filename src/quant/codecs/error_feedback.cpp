// SPDX-License-Identifier: Apache-2.0
#include "quant/codecs/error_feedback.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/base/check.h"
#include "quant/math/codec_math.h"

namespace isthmus {
namespace {

Expected<void, NotFinite> all_finite(std::span<const float> values, std::size_t begin,
                                     const char* what) {
  const auto bad = std::ranges::find_if_not(values, [](float v) { return std::isfinite(v); });
  if (bad == values.end()) return {};
  const std::size_t index = begin + static_cast<std::size_t>(bad - values.begin());
  return Unexpected<NotFinite>(
      NotFinite{index, fmt::format("value {} {} {}: error feedback takes in no such value and is "
                                   "as before",
                                   index, what, *bad)});
}

}  // namespace

Expected<void, NotFinite> encode_with_feedback(const Codec& codec, std::span<float> residual,
                                               float decay, std::size_t begin,
                                               std::span<float> tile, std::span<std::byte> out,
                                               const EncodeKey& key) {
  ISTHMUS_CHECK(residual.size() == tile.size(), residual.size(), tile.size());
  for (std::size_t i = 0; i < tile.size(); ++i) {
    tile[i] = with_one_nan(tile[i] + (decay == 1 ? residual[i] : decay * residual[i]));
  }
  codec.encode(tile, out, key);
  if (auto ok = all_finite(tile, begin, "with its residual is"); !ok) return ok;
  std::array<float, kTileValues> scratch;
  const std::span<float> sent = std::span(scratch).first(tile.size());
  const auto decoded = codec.decode(out, sent);
  ISTHMUS_CHECK(decoded.has_value(), codec.name());  // every codec takes finite values
  if (auto ok = all_finite(sent, begin, "decodes to"); !ok) return ok;
  for (std::size_t i = 0; i < tile.size(); ++i) residual[i] = tile[i] - sent[i];
  return {};
}

ErrorFeedback::ErrorFeedback(std::size_t n, float decay) : residual_(n), decay_(decay) {
  ISTHMUS_CHECK(decay > 0, decay);
  ISTHMUS_CHECK(decay <= 1, decay);
}

Expected<void, NotFinite> ErrorFeedback::encode_tile(const Codec& codec, std::size_t begin,
                                                     std::span<float> tile,
                                                     std::span<std::byte> out,
                                                     const EncodeKey& key) {
  ISTHMUS_CHECK(begin % kTileValues == 0, begin);
  ISTHMUS_CHECK(begin + tile.size() <= residual_.size(), begin, tile.size(), residual_.size());
  return encode_with_feedback(codec, residual_.span().subspan(begin, tile.size()), decay_, begin,
                              tile, out, key);
}

Expected<Encoded, NotFinite> ErrorFeedback::encode(const Codec& codec, std::span<const float> x,
                                                   const EncodeKey& key) {
  ISTHMUS_CHECK(x.size() == residual_.size(), x.size(), residual_.size());
  Encoded encoded{.values = x.size(), .bytes = {}};
  encoded.bytes.resize(encoded_bytes(codec, x.size()));
  std::array<float, kTileValues> scratch;
  EncodeKey tile_key = key;
  std::size_t at = 0;
  for (std::size_t begin = 0; begin < x.size(); begin += kTileValues) {
    const std::span<float> tile = std::span(scratch).first(std::min(kTileValues, x.size() - begin));
    std::ranges::copy(x.subspan(begin, tile.size()), tile.begin());
    const std::size_t size = codec.encoded_bytes(tile.size());
    if (auto ok =
            encode_tile(codec, begin, tile, std::span(encoded.bytes).subspan(at, size), tile_key);
        !ok) {
      return Unexpected<NotFinite>(ok.error());
    }
    at += size;
    ++tile_key.tile;
  }
  return encoded;
}

void ErrorFeedback::restore(std::span<const float> residual) {
  ISTHMUS_CHECK(residual.size() == residual_.size(), residual.size(), residual_.size());
  ISTHMUS_CHECK(all_finite(residual, 0, "is").has_value());
  std::ranges::copy(residual, residual_.begin());
}

Expected<void, DecodeError> ErrorFeedback::take_back(const Codec& codec,
                                                     std::span<const std::byte> bytes) {
  std::vector<float> sent(residual_.size());
  if (auto ok = decode(codec, bytes, sent); !ok) return ok;
  for (std::size_t i = 0; i < sent.size(); ++i) {
    if (std::isfinite(sent[i])) residual_[i] += sent[i];
  }
  return {};
}

void ErrorFeedback::reset() { residual_.fill_zero(); }

}  // namespace isthmus
