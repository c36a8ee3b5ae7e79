// SPDX-License-Identifier: Apache-2.0
#include "outer/parts/flat_view.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/base/check.h"

namespace isthmus::outer {

void FlatView::append(std::span<float> piece) {
  if (piece.empty()) {
    return;
  }
  begins_.push_back(size_);
  pieces_.push_back(piece);
  size_ += piece.size();
}

void FlatView::read(std::size_t begin, std::span<float> out) const {
  ISTHMUS_CHECK(begin + out.size() <= size_, begin, out.size(), size_);
  auto k = static_cast<std::size_t>(std::ranges::upper_bound(begins_, begin) - begins_.begin());
  std::size_t done = 0;
  while (done < out.size()) {
    const std::span<const float> rest = pieces_[k - 1].subspan(begin + done - begins_[k - 1]);
    const std::size_t count = std::min(rest.size(), out.size() - done);
    std::ranges::copy(rest.first(count), out.subspan(done).begin());
    done += count;
    ++k;
  }
}

void FlatView::for_range(
    std::size_t begin, std::size_t end,
    const std::function<void(std::size_t at, std::span<float> values)>& piece) const {
  auto k = static_cast<std::size_t>(std::ranges::upper_bound(begins_, begin) - begins_.begin());
  for (; begin < end; ++k) {
    const std::span<float> rest = pieces_.at(k - 1).subspan(begin - begins_[k - 1]);
    const std::span<float> part = rest.first(std::min(rest.size(), end - begin));
    piece(begin, part);
    begin += part.size();
  }
}

void FlatView::for_each(
    const std::function<void(std::size_t begin, std::span<float> values)>& piece) const {
  for (std::size_t k = 0; k < pieces_.size(); ++k) {
    piece(begins_[k], pieces_[k]);
  }
}

void for_each_tile(std::size_t n, const FillTile& fill) {
  std::array<float, kTileValues> scratch;
  for (std::size_t begin = 0; begin < n; begin += kTileValues) {
    fill(begin, std::span(scratch).first(std::min(kTileValues, n - begin)));
  }
}

Encoded encode_tiles(const Codec& codec, std::size_t n, const FillTile& fill, const EncodeKey& key,
                     ErrorFeedback* feedback, ContributionSample* sample) {
  Encoded encoded{.values = n, .bytes = {}};
  encoded.bytes.reserve(encoded_bytes(codec, n));
  EncodeKey tile_key = key;
  std::size_t at = 0;
  for_each_tile(n, [&](std::size_t begin, std::span<float> tile) {
    const std::size_t bytes = codec.encoded_bytes(tile.size());
    encoded.bytes.resize(at + bytes);  // tile by tile, so that its zeros do not leave the cache
    const std::span<std::byte> out = std::span(encoded.bytes).subspan(at);
    fill(begin, tile);
    if (feedback == nullptr) {
      codec.encode(tile, out, tile_key);
    } else if (!feedback->encode_tile(codec, begin, tile, out, tile_key)) {
      feedback->reset();
    }
    if (sample != nullptr && sample->looks_at(begin / kTileValues)) {
      sample->take(codec, tile, out);
    }
    at += bytes;
    ++tile_key.tile;
  });
  return encoded;
}

double sum_of_squares(std::span<const float> tile) {
  constexpr std::size_t kLanes = 8;
  std::array<double, kLanes> lane{};
  std::size_t i = 0;
  for (; i + kLanes <= tile.size(); i += kLanes) {
    for (std::size_t k = 0; k < kLanes; ++k) {
      const double x = static_cast<double>(tile[i + k]);
      lane[k] += x * x;
    }
  }
  for (; i < tile.size(); ++i) {
    const double x = static_cast<double>(tile[i]);
    lane[i % kLanes] += x * x;
  }
  return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

double l2_norm(std::span<const float> values) {
  double total = 0;
  for (std::size_t begin = 0; begin < values.size(); begin += kTileValues) {
    total += sum_of_squares(values.subspan(begin, std::min(kTileValues, values.size() - begin)));
  }
  return std::sqrt(total);
}

}  // namespace isthmus::outer
