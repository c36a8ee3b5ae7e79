// SPDX-License-Identifier: Apache-2.0
// The arithmetic of 1-bit Adam after the freeze of its variance (one_bit_adam.h), on the host or on
// the device that has weights, gradients and moments, with the same bits. A step calls
// gradient_norm, mix, the functions of WorkerEnd, `take` for each bucket's mean, and `step`. One
// thread.
// On a device the encoded bytes and a sum of squares for each tile of the gradient are copied to
// the host, and the mean is copied back. Device memory: with error feedback 4 bytes a value for the
// residual; the vector, the mean and the encoding of the largest bucket; 8 bytes a tile; 24 bytes
// for each contiguous run of elements, of the tensors and of the buckets.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "isthmus/inner_loop.h"
#include "kernels/cuda/resident_adam.h"
#include "outer/parts/buckets.h"
#include "outer/parts/compressed_mean.h"
#include "outer/parts/uncorrected_adam.h"

namespace isthmus::outer {

class FrozenMomentum : public WorkerEnd {
 public:
  /// Called at the freeze: these elements have a variance; residuals start at zero. THROWS:
  /// cuda::OutOfDeviceMemory, for the buckets' runs of elements; the object must not be used
  /// afterwards.
  virtual void begin(const std::vector<Bucket>& buckets) = 0;
  /// As outer::gradient_norm, for the gradients that the inner loop has computed; `idle`: the
  /// gradients are zero.
  [[nodiscard]] virtual double gradient_norm(bool idle) = 0;
  /// The next encoding is of keep * m + own * g.
  virtual void mix(float keep, float own) = 0;
  /// m of a bucket := mean.
  virtual void take(std::size_t bucket, std::span<const float> mean) = 0;
  /// outer::adam_step of all parameters, with weight decay where they have it.
  virtual void step(const AdamStep& step) = 0;
};

/// Borrows the inner loop. `codec` is co-owned by rounds in flight.
[[nodiscard]] std::unique_ptr<FrozenMomentum> frozen_momentum_on_host(
    InnerLoop& inner, std::shared_ptr<const Codec> codec);

/// `adam`: the state behind `inner`; borrowed. Buckets have at most `bucket_values` values.
/// Allocates all device memory except that for the buckets' runs (`begin`). THROWS:
/// cuda::OutOfDeviceMemory; SystemError for lack of pinned memory or without a device.
[[nodiscard]] std::unique_ptr<FrozenMomentum> frozen_momentum_on_device(const InnerLoop& inner,
                                                                        const Codec& codec,
                                                                        std::size_t bucket_values,
                                                                        cuda::ResidentAdam& adam);

}  // namespace isthmus::outer
