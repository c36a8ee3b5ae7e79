// SPDX-License-Identifier: Apache-2.0
#include "outer/device_encoder.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/check.h"
#include "kernels/cuda/outer_arithmetic.h"
#include "outer/lanes.h"

namespace isthmus::outer {
namespace {

/// Numbers of the tiles of n values that a ContributionSample looks at.
std::vector<std::uint32_t> sampled_on_device(std::size_t n) {
  const std::vector<std::size_t> tiles = sampled_tiles(n);
  return {tiles.begin(), tiles.end()};
}

}  // namespace

DeviceEncoder::DeviceEncoder(const Codec& codec, std::size_t largest)
    : codec_(make_codec(codec.name())),
      vector_(largest),
      tile_sums_(tiles_of(largest)),
      bytes_(encoded_bytes(codec, largest)),
      sampled_(most_sampled_tiles(largest)),
      looked_at_(sampled_.size() * kTileValues),
      host_tile_sums_(tile_sums_.size()),
      host_bytes_(bytes_.size()),
      host_looked_at_(looked_at_.size()) {}

// The tiles' sums are added on the host, in order: on the device that is one thread's work.
double DeviceEncoder::norm(cuda::Stream& stream, std::size_t n) const {
  const std::size_t tiles = tiles_of(n);
  cuda::tile_squares(stream, n, vector_.data(), tile_sums_.data());
  cuda::copy<double>(stream, host_tile_sums_.data(), tile_sums_.data(), tiles);
  stream.synchronize();
  const double* const sums = host_tile_sums_.data();
  return std::sqrt(std::accumulate(sums, sums + tiles, 0.0));
}

DeviceEncoder::Contribution DeviceEncoder::encode(cuda::Stream& stream, std::size_t n,
                                                  const EncodeKey& key, float* residual) {
  ISTHMUS_CHECK(n <= vector_.size(), n, vector_.size());
  const std::vector<std::uint32_t> sampled = sampled_on_device(n);
  ISTHMUS_CHECK(sampled.size() <= sampled_.size(), n, sampled.size(), sampled_.size());
  cuda::copy(stream, sampled_.data(), sampled.data(), sampled.size());
  const Work work{stream, n, key, residual, sampled};
  queue_from(0, work);
  if (residual != nullptr) start_residual_anew_where_not_finite(work);
  const std::size_t bytes = encoded_bytes(codec(), n);
  cuda::copy<std::byte>(stream, host_bytes_.data(), bytes_.data(), bytes);
  cuda::copy<float>(stream, host_looked_at_.data(), looked_at_.data(),
                    sampled.size() * kTileValues);
  stream.synchronize();
  Contribution contribution{
      .encoded = {.values = n, .bytes = {host_bytes_.data(), host_bytes_.data() + bytes}},
      .sample = ContributionSample(n)};
  const std::size_t whole = codec().encoded_bytes(kTileValues);
  for (std::size_t k = 0; k < sampled.size(); ++k) {
    const std::size_t values = std::min(kTileValues, n - sampled[k] * kTileValues);
    contribution.sample.take(codec(), {host_looked_at_.data() + k * kTileValues, values},
                             std::span(contribution.encoded.bytes)
                                 .subspan(sampled[k] * whole, codec().encoded_bytes(values)));
  }
  return contribution;
}

void DeviceEncoder::queue_from(std::size_t first, const Work& work) {
  const auto behind = static_cast<std::size_t>(std::ranges::lower_bound(work.sampled, first) -
                                               work.sampled.begin());
  cuda::gather_tiles(work.stream, work.n, vector_.data(), work.residual, sampled_.data() + behind,
                     work.sampled.size() - behind, looked_at_.data() + behind * kTileValues);
  const std::size_t begin = first * kTileValues;
  const float* const values = vector_.data() + begin;
  std::byte* const bytes = bytes_.data() + first * codec().encoded_bytes(kTileValues);
  EncodeKey key = work.key;
  key.tile += first;
  if (work.residual == nullptr) {
    codec_.encode(work.stream, values, work.n - begin, bytes, key);
  } else {
    codec_.encode_with_feedback(work.stream, work.residual + begin, 1, values, work.n - begin,
                                bytes, key, bad_);
  }
}

// As encode_tiles: after a tile that is not finite with its residual all of the residual is zero,
// and the tiles that follow it are encoded from there.
void DeviceEncoder::start_residual_anew_where_not_finite(const Work& work) {
  std::size_t next = 0;
  for (;;) {
    const std::uint32_t bad = bad_.read(work.stream);
    if (bad == cuda::FirstBadTile::kNone) return;
    next += std::size_t{bad} + 1;
    cuda::fill_zero(work.stream, work.residual, work.n);
    if (next >= tiles_of(work.n)) return;
    queue_from(next, work);
  }
}

}  // namespace isthmus::outer
