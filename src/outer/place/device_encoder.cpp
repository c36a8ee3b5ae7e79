// SPDX-License-Identifier: Apache-2.0
#include "outer/place/device_encoder.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/check.h"
#include "kernels/cuda/outer_arithmetic.h"
#include "outer/parts/lanes.h"

namespace isthmus::outer {
namespace {

/// Numbers of the tiles of n values that a ContributionSample looks at.
std::vector<std::uint32_t> sampled_on_device(std::size_t n) {
  const std::vector<std::size_t> tiles = sampled_tiles(n);
  return {tiles.begin(), tiles.end()};
}

}  // namespace

DeviceEncoder::DeviceEncoder(const Codec& codec, std::size_t largest, KeptIn kept,
                             DeviceFragmentArrays arrays)
    : codec_(make_codec(codec.name())),
      vector_(largest),
      mean_(largest),
      tile_sums_(tiles_of(largest)),
      bytes_(encoded_bytes(codec, largest)),
      sampled_(most_sampled_tiles(largest)),
      looked_at_(sampled_.size() * kTileValues),
      host_tile_sums_(tile_sums_.size()),
      host_bytes_(bytes_.size()),
      host_sampled_(sampled_.size()),
      host_looked_at_(looked_at_.size()) {
  staging_.make();
  if (kept == KeptIn::kDevice) return;
  anchor = DevicePlace(largest);
  if (arrays.momentum) momentum = DevicePlace(largest);
  if (arrays.summed) summed = DevicePlace(largest);
  if (arrays.residual) residual = DevicePlace(largest);
}

void DeviceEncoder::begin_after(cuda::Stream& other) {
  others_work_.record(other);
  stream_.wait(others_work_);
}

void DeviceEncoder::go_before(cuda::Stream& other) {
  uncommitted_delta_.record(stream_);
  other.wait(uncommitted_delta_);
}

void DeviceEncoder::begin_vector(std::size_t n) {
  ISTHMUS_CHECK(n <= vector_.size(), n, vector_.size());
  n_ = n;
}

void DeviceEncoder::begin_norm(std::size_t n) {
  begin_vector(n);
  cuda::tile_squares(stream_, n, vector_.data(), tile_sums_.data());
  cuda::copy<double>(stream_, host_tile_sums_.data(), tile_sums_.data(), tiles_of(n));
  norm_is_there_.record(stream_);
}

// The tiles' sums are added on the host, in order: on the device that is one thread's work.
double DeviceEncoder::norm() {
  norm_is_there_.synchronize();
  const double* const sums = host_tile_sums_.data();
  return std::sqrt(std::accumulate(sums, sums + tiles_of(n_), 0.0));
}

void DeviceEncoder::begin_encoding(const EncodeKey& key, float* lost) {
  key_ = key;
  residual_ = lost;
  tiles_ = sampled_on_device(n_);
  ISTHMUS_CHECK(tiles_.size() <= sampled_.size(), n_, tiles_.size(), sampled_.size());
  std::ranges::copy(tiles_, host_sampled_.data());
  cuda::copy<std::uint32_t>(stream_, sampled_.data(), host_sampled_.data(), tiles_.size());
  queue_from(0);
  queue_copies();
}

void DeviceEncoder::queue_copies() {
  cuda::copy<std::byte>(stream_, host_bytes_.data(), bytes_.data(), encoded_bytes(codec(), n_));
  cuda::copy<float>(stream_, host_looked_at_.data(), looked_at_.data(),
                    tiles_.size() * kTileValues);
  bytes_are_there_.record(stream_);
}

DeviceEncoder::Contribution DeviceEncoder::finish_encoding() {
  bytes_are_there_.synchronize();
  if (residual_ != nullptr && start_residual_anew_where_not_finite()) {
    queue_copies();
    bytes_are_there_.synchronize();
  }
  const std::size_t bytes = encoded_bytes(codec(), n_);
  Contribution contribution{
      .encoded = {.values = n_, .bytes = {host_bytes_.data(), host_bytes_.data() + bytes}},
      .sample = ContributionSample(n_)};
  const std::size_t whole = codec().encoded_bytes(kTileValues);
  for (std::size_t k = 0; k < tiles_.size(); ++k) {
    const std::size_t values = std::min(kTileValues, n_ - tiles_[k] * kTileValues);
    contribution.sample.take(codec(), {host_looked_at_.data() + k * kTileValues, values},
                             std::span(contribution.encoded.bytes)
                                 .subspan(tiles_[k] * whole, codec().encoded_bytes(values)));
  }
  return contribution;
}

void DeviceEncoder::queue_from(std::size_t first) {
  const auto behind =
      static_cast<std::size_t>(std::ranges::lower_bound(tiles_, first) - tiles_.begin());
  cuda::gather_tiles(stream_, n_, vector_.data(), residual_, sampled_.data() + behind,
                     tiles_.size() - behind, looked_at_.data() + behind * kTileValues);
  const std::size_t begin = first * kTileValues;
  const float* const values = vector_.data() + begin;
  std::byte* const bytes = bytes_.data() + first * codec().encoded_bytes(kTileValues);
  EncodeKey key = key_;
  key.tile += first;
  if (residual_ == nullptr) {
    codec_.encode(stream_, values, n_ - begin, bytes, key);
  } else {
    codec_.encode_with_feedback(stream_, residual_ + begin, 1, values, n_ - begin, bytes, key,
                                bad_);
  }
}

// As encode_tiles: after a tile that is not finite with its residual all of the residual is zero,
// and the tiles that follow it are encoded from there.
bool DeviceEncoder::start_residual_anew_where_not_finite() {
  std::size_t next = 0;
  for (;;) {
    const std::uint32_t bad = bad_.read(stream_);
    if (bad == cuda::FirstBadTile::kNone) return next > 0;
    next += std::size_t{bad} + 1;
    cuda::fill_zero(stream_, residual_, n_);
    if (next >= tiles_of(n_)) return true;
    queue_from(next);
  }
}

float* DeviceEncoder::bring_mean(std::span<const float> values) {
  ISTHMUS_CHECK(values.size() <= mean_.size(), values.size(), mean_.size());
  if (mean_of_.data() != values.data() || mean_of_.size() != values.size()) {
    staging_.put(stream_, mean_.data(), values);
    mean_of_ = values;
  }
  return mean_.data();
}

}  // namespace isthmus::outer
