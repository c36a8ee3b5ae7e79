// SPDX-License-Identifier: Apache-2.0
#include "outer/parts/contribution_sample.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <utility>

#include "core/base/check.h"
#include "outer/parts/flat_view.h"
#include "outer/parts/lanes.h"

namespace isthmus::outer {
namespace {

constexpr std::size_t kEnoughTiles = 32;    // 131,072 values; fewer are all looked at
constexpr std::size_t kLargestStride = 64;  // longer vectors: 1.6 % of their tiles

double dot(std::span<const float> a, std::span<const float> b) {
  constexpr std::size_t kLanes = 8;
  std::array<double, kLanes> lane{};
  std::size_t i = 0;
  for (; i + kLanes <= a.size(); i += kLanes) {
    for (std::size_t k = 0; k < kLanes; ++k) {
      lane[k] += static_cast<double>(a[i + k]) * static_cast<double>(b[i + k]);
    }
  }
  for (; i < a.size(); ++i) {
    lane[i % kLanes] += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  }
  return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

}  // namespace

std::size_t sample_stride(std::size_t n) {
  return std::clamp<std::size_t>(tiles_of(n) / kEnoughTiles, 1, kLargestStride);
}

std::size_t most_sampled_tiles(std::size_t n) {
  constexpr std::size_t kMostOfAll = 2 * kEnoughTiles - 1;  // at stride 1
  return std::min(tiles_of(n), std::max(kMostOfAll, tiles_of(n) / kLargestStride + 1));
}

std::size_t sampled_tile(std::size_t n, std::size_t k) {
  const std::size_t stride = sample_stride(n);
  const std::size_t first = k * stride;
  // The mixing of SplitMix64 (Steele, Lea, Flood 2014).
  std::uint64_t mixed = (k + 1) * 0x9e3779b97f4a7c15U;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9U;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebU;
  return first + (mixed ^ (mixed >> 31)) % std::min(stride, tiles_of(n) - first);
}

std::vector<std::size_t> sampled_tiles(std::size_t n) {
  std::vector<std::size_t> tiles;
  for (std::size_t k = 0; k * sample_stride(n) < tiles_of(n); ++k) {
    tiles.push_back(sampled_tile(n, k));
  }
  return tiles;
}

std::span<const float> ContributionSample::decode(const Codec& codec,
                                                  std::span<const std::byte> bytes,
                                                  std::size_t values) {
  const std::size_t begin = decoded_.size();
  if (begin == 0) {
    decoded_.reserve((tiles_of(n_) / stride_ + 1) * std::min(n_, kTileValues));
  }
  decoded_.resize(begin + values);
  const std::span<float> tile = std::span(decoded_).subspan(begin);
  decodes_ = decodes_ && codec.decode(bytes, tile).has_value();
  return tile;
}

void ContributionSample::take(const Codec& codec, std::span<const float> x,
                              std::span<const std::byte> bytes) {
  const std::span<const float> sent = decode(codec, bytes, x.size());
  std::array<float, kTileValues> lost;
  for (std::size_t i = 0; i < x.size(); ++i) lost[i] = sent[i] - x[i];
  sums_.push_back(sum_of_squares(x));
  sums_.push_back(sum_of_squares(std::span(lost).first(x.size())));
}

ContributionSample::Squares ContributionSample::squares() const {
  Squares sum;
  for (std::size_t i = 0; i + 1 < sums_.size(); i += 2) {
    sum.all += sums_[i];
    sum.lost += sums_[i + 1];
  }
  return sum;
}

std::optional<double> ContributionSample::codec_error() const {
  const Squares sum = squares();
  const double error = std::sqrt(sum.lost / sum.all);
  if (!decodes_ || !(sum.all > 0) || !std::isfinite(sum.all) || !std::isfinite(error)) {
    return std::nullopt;
  }
  return error;
}

std::optional<double> ContributionSample::cosine(std::span<const float> mean) const {
  if (n_ == 0 || !decodes_) {
    return std::nullopt;
  }
  ISTHMUS_CHECK(mean.size() == n_, mean.size(), n_);
  double products = 0;
  double own_squares = 0;
  double mean_squares = 0;
  std::size_t at = 0;
  for (const std::size_t tile : sampled_tiles(n_)) {
    const std::size_t begin = tile * kTileValues;
    const std::size_t values = std::min(kTileValues, n_ - begin);
    const std::span<const float> own = std::span(decoded_).subspan(at, values);
    const std::span<const float> agreed = mean.subspan(begin, values);
    products += dot(own, agreed);
    own_squares += sum_of_squares(own);
    mean_squares += sum_of_squares(agreed);
    at += values;
  }
  ISTHMUS_CHECK(at == decoded_.size(), at, decoded_.size());
  // Squares of fp32 values, so their product is far from the ends of fp64.
  const double norms = std::sqrt(own_squares * mean_squares);
  if (!(norms > 0) || !std::isfinite(norms) || !std::isfinite(products)) {
    return std::nullopt;
  }
  return std::clamp(products / norms, -1.0, 1.0);
}

void ContributionSample::save(StateWriter& writer, const std::string& prefix) const {
  if (!codec_error()) return;
  const Squares sum = squares();
  writer.real(prefix + "squares", sum.all);
  writer.real(prefix + "lost_squares", sum.lost);
}

ContributionSample ContributionSample::of(const Codec& codec, const Encoded& encoded,
                                          std::vector<double> sums) {
  ContributionSample sample(encoded.values);
  const std::size_t full = codec.encoded_bytes(kTileValues);
  for (const std::size_t tile : sampled_tiles(encoded.values)) {
    const std::size_t values = std::min(kTileValues, encoded.values - tile * kTileValues);
    static_cast<void>(sample.decode(
        codec, std::span(encoded.bytes).subspan(tile * full, codec.encoded_bytes(values)), values));
  }
  sample.sums_ = std::move(sums);
  return sample;
}

ContributionSample ContributionSample::load(StateReader& reader, const std::string& prefix,
                                            const Codec& codec, const Encoded& encoded) {
  std::vector<double> sums;
  if (reader.contains(prefix + "squares")) {
    sums = {reader.real(prefix + "squares"), reader.real(prefix + "lost_squares")};
  }
  return of(codec, encoded, std::move(sums));
}

}  // namespace isthmus::outer
