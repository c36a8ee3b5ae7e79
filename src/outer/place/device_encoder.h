// SPDX-License-Identifier: Apache-2.0
// Outer gradients on a device: one vector there that a worker's fragments fill in turn, its norm,
// and its encoding, which is copied to the host; also the copy of a mean to the device. All work is
// on a separate stream, which overlaps the inner loop's; by means of events the host waits only
// for work that the encoder has queued.
// DETERMINISM: norms, bytes, residuals and samples are those of encode_tiles
// (outer/parts/flat_view.h). One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "isthmus/codec.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/staging.h"
#include "outer/parts/contribution_sample.h"
#include "outer/place/device_places.h"
#include "quant/cuda/cuda_codec.h"

namespace isthmus::outer {

/// Arrays that a device fragment has in addition to its anchor.
struct DeviceFragmentArrays {
  bool momentum = false, summed = false, residual = false;
};

class DeviceEncoder {
 public:
  /// `largest`: values of the largest fragment. With KeptIn::kPinned the encoder has device places
  /// for the anchor and for `arrays`. REQUIRES: a codec with kernels.
  DeviceEncoder(const Codec& codec, std::size_t largest, KeptIn kept, DeviceFragmentArrays arrays);

  [[nodiscard]] const Codec& codec() const { return codec_.codec(); }
  [[nodiscard]] cuda::Stream& stream() { return stream_; }
  /// Work queued here after begin_after(other) begins after all work queued on `other`; go_before
  /// is the reverse.
  void begin_after(cuda::Stream& other);
  void go_before(cuda::Stream& other);

  /// (largest,) float32 on the device: an outer gradient, from begin_vector or begin_norm to
  /// finish_encoding.
  [[nodiscard]] float* vector() const { return vector_.data(); }

  /// Sets the first n values as the next to be encoded.
  void begin_vector(std::size_t n);
  /// The same, and queues their L2 norm. `norm` blocks until the norm is on the host.
  void begin_norm(std::size_t n);
  [[nodiscard]] double norm();

  struct Contribution {
    Encoded encoded;
    ContributionSample sample;
  };
  /// Queues the encoding of these values under `key`. lost: (n,) on the device, the residual of
  /// earlier encodings, which is added and updated; null: none.
  void begin_encoding(const EncodeKey& key, float* lost);
  /// Blocks until the bytes are on the host.
  [[nodiscard]] Contribution finish_encoding();

  /// RETURNS: `values` on the device. The copy is queued unless it was already for unchanged values
  /// at the same address. The caller may change `values` after the return.
  [[nodiscard]] float* bring_mean(std::span<const float> values);
  /// Declares that the next mean has other values, even at the same address.
  void forget_mean() { mean_of_ = {}; }
  /// (largest,) float32 on the device, in place of a mean.
  [[nodiscard]] float* mean_place() {
    forget_mean();
    return mean_.data();
  }

  DevicePlace anchor, momentum, summed, residual;

 private:
  /// Queues the encoding from tile `first` on, and the copies of the sampled tiles.
  void queue_from(std::size_t first);
  void queue_copies();
  /// RETURNS: true if the residual was not finite and starts from zero.
  bool start_residual_anew_where_not_finite();

  cuda::DeviceCodec codec_;
  cuda::FirstBadTile bad_;
  cuda::DeviceArray<float> vector_, mean_;
  cuda::DeviceArray<double> tile_sums_;
  cuda::DeviceArray<std::byte> bytes_;
  cuda::DeviceArray<std::uint32_t> sampled_;
  cuda::DeviceArray<float> looked_at_;  // sampled tiles, one after another
  cuda::PinnedArray<double> host_tile_sums_;
  cuda::PinnedArray<std::byte> host_bytes_;
  cuda::PinnedArray<std::uint32_t> host_sampled_;
  cuda::PinnedArray<float> host_looked_at_;
  cuda::Staging staging_;  // of means
  std::span<const float> mean_of_;

  // The vector in flight:
  std::size_t n_ = 0;
  EncodeKey key_;
  float* residual_ = nullptr;
  std::vector<std::uint32_t> tiles_;  // indices of the sampled tiles

  cuda::Event others_work_, uncommitted_delta_, norm_is_there_, bytes_are_there_;
  // The stream is destroyed before the arrays it uses. Low priority: it fills idle parts of the
  // device.
  cuda::Stream stream_{cuda::Stream::Priority::kLow};
};

}  // namespace isthmus::outer
