// SPDX-License-Identifier: Apache-2.0
// Outer gradients on a device: a vector there that the fragments of a worker fill in turn, its
// norm, and its encoding, which comes to the host; and the way back of a mean. All of it is work on
// a stream of its own, which goes on beside the inner loop's: it waits for the device nowhere but
// for what it has queued itself, by events.
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

/// Of an OuterFragment on a device.
struct DeviceFragmentArrays {
  bool momentum = false, summed = false, residual = false;
};

class DeviceEncoder {
 public:
  /// `largest`: values of the largest fragment; where its state is kept in pinned memory, there are
  /// places for `arrays` and its anchor. REQUIRES: a codec with kernels.
  DeviceEncoder(const Codec& codec, std::size_t largest, KeptIn kept, DeviceFragmentArrays arrays);

  [[nodiscard]] const Codec& codec() const { return codec_.codec(); }
  [[nodiscard]] cuda::Stream& stream() { return stream_; }
  /// What is queued here from now on begins after all that is queued on `other`, and the reverse.
  void begin_after(cuda::Stream& other);
  void go_before(cuda::Stream& other);

  /// (largest,) float32 on the device: an outer gradient, from begin_vector or begin_norm to
  /// finish_encoding.
  [[nodiscard]] float* vector() const { return vector_.data(); }

  /// The first n values are what is encoded next.
  void begin_vector(std::size_t n);
  /// The same, and their L2 norm. `norm` blocks until it is there.
  void begin_norm(std::size_t n);
  [[nodiscard]] double norm();

  struct Contribution {
    Encoded encoded;
    ContributionSample sample;
  };
  /// Those values, encoded under `key`. lost: (n,) on the device, the residual of earlier
  /// encodings, which is added and moves on; null: none.
  void begin_encoding(const EncodeKey& key, float* lost);
  /// Blocks until the bytes are on the host.
  [[nodiscard]] Contribution finish_encoding();

  /// On the device; the copy is queued unless it has been for these values at this address, which
  /// have not changed since. `values` are the caller's again when it returns.
  [[nodiscard]] float* bring_mean(std::span<const float> values);
  /// The next mean is another one, whatever its address.
  void forget_mean() { mean_of_ = {}; }
  /// (largest,) float32 on the device, where no mean is.
  [[nodiscard]] float* mean_place() {
    forget_mean();
    return mean_.data();
  }

  DevicePlace anchor, momentum, summed, residual;

 private:
  /// Queues the encoding from tile `first` on, and the copies of what is looked at there.
  void queue_from(std::size_t first);
  void queue_copies();
  /// RETURNS: whether it was.
  bool start_residual_anew_where_not_finite();

  cuda::DeviceCodec codec_;
  cuda::FirstBadTile bad_;
  cuda::DeviceArray<float> vector_, mean_;
  cuda::DeviceArray<double> tile_sums_;
  cuda::DeviceArray<std::byte> bytes_;
  cuda::DeviceArray<std::uint32_t> sampled_;
  cuda::DeviceArray<float> looked_at_;  // tiles, one after another
  cuda::PinnedArray<double> host_tile_sums_;
  cuda::PinnedArray<std::byte> host_bytes_;
  cuda::PinnedArray<std::uint32_t> host_sampled_;
  cuda::PinnedArray<float> host_looked_at_;
  cuda::Staging staging_;  // of means
  std::span<const float> mean_of_;

  // Of the vector that is being sent:
  std::size_t n_ = 0;
  EncodeKey key_;
  float* residual_ = nullptr;
  std::vector<std::uint32_t> tiles_;  // numbers of those that are looked at

  cuda::Event others_work_, own_work_, norm_is_there_, bytes_are_there_;
  // Ends before what it reads and writes; fills what passes leave of the device.
  cuda::Stream stream_{cuda::Stream::Priority::kLow};
};

}  // namespace isthmus::outer
