// SPDX-License-Identifier: Apache-2.0
// Outer gradients on a device: a vector there that the fragments of a worker fill in turn, its
// norm, and its encoding, which comes to the host. DETERMINISM: norms, bytes, residuals and samples
// are those of encode_tiles (outer/flat_view.h). One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "isthmus/codec.h"
#include "kernels/cuda/device.h"
#include "outer/contribution_sample.h"
#include "quant/cuda_codec.h"

namespace isthmus::outer {

class DeviceEncoder {
 public:
  /// `largest`: values of the largest fragment. REQUIRES: a codec with kernels.
  DeviceEncoder(const Codec& codec, std::size_t largest);

  [[nodiscard]] const Codec& codec() const { return codec_.codec(); }
  /// (largest,) float32 on the device: an outer gradient, or what a fragment needs it for else.
  [[nodiscard]] float* vector() const { return vector_.data(); }

  /// L2 norm of the first n values. Blocks.
  [[nodiscard]] double norm(cuda::Stream& stream, std::size_t n) const;

  struct Contribution {
    Encoded encoded;
    ContributionSample sample;
  };
  /// The first n values, encoded under `key`. residual: (n,) on the device, what earlier encodings
  /// lost, which is added and moves on; null: none. Blocks.
  [[nodiscard]] Contribution encode(cuda::Stream& stream, std::size_t n, const EncodeKey& key,
                                    float* residual);

 private:
  struct Work {
    cuda::Stream& stream;
    std::size_t n;
    EncodeKey key;
    float* residual;
    std::span<const std::uint32_t> sampled;  // numbers of the tiles that are looked at
  };
  /// Queues the encoding from tile `first` on, and the copies of what is looked at there.
  void queue_from(std::size_t first, const Work& work);
  void start_residual_anew_where_not_finite(const Work& work);

  cuda::DeviceCodec codec_;
  cuda::FirstBadTile bad_;
  cuda::DeviceArray<float> vector_;
  cuda::DeviceArray<double> tile_sums_;
  cuda::DeviceArray<std::byte> bytes_;
  cuda::DeviceArray<std::uint32_t> sampled_;
  cuda::DeviceArray<float> looked_at_;  // tiles, one after another
  cuda::PinnedArray<double> host_tile_sums_;
  cuda::PinnedArray<std::byte> host_bytes_;
  cuda::PinnedArray<float> host_looked_at_;
};

}  // namespace isthmus::outer
