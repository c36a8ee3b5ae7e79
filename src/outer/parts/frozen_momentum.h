// SPDX-License-Identifier: Apache-2.0
// What 1-bit Adam computes once its variance is frozen (one_bit_adam.h), on the host or on the
// device that has weights, gradients and moments, with the same bits. A step calls gradient_norm,
// mix, what WorkerEnd has, `take` for each bucket's mean, and `step`. One thread.
// On a device the encoded bytes and a norm for each tile of the gradient go to the host, and the
// mean comes back. Memory there: 4 bytes a value for what encoding has lost, the vector and the
// mean of the largest bucket, its encoding, and 24 bytes for each run of lanes without a gap.
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
  /// The variance is frozen, and these lanes have one; nothing has been lost yet.
  /// THROWS: cuda::OutOfDeviceMemory, for the runs of lanes; this is of no use afterwards.
  virtual void begin(const std::vector<Bucket>& buckets) = 0;
  /// As outer::gradient_norm, of the gradients that the inner loop has computed; of an idle one
  /// these are zero.
  [[nodiscard]] virtual double gradient_norm(bool idle) = 0;
  /// What is encoded next is keep m + own g.
  virtual void mix(float keep, float own) = 0;
  /// m of a bucket := mean.
  virtual void take(std::size_t bucket, std::span<const float> mean) = 0;
  /// outer::adam_step of all parameters, with weight decay where they have it.
  virtual void step(const AdamStep& step) = 0;
};

/// Borrows the inner loop.
[[nodiscard]] std::unique_ptr<FrozenMomentum> frozen_momentum_on_host(
    InnerLoop& inner, std::shared_ptr<const Codec> codec);

/// `adam`: what is behind `inner`; borrowed. Buckets have at most `bucket_values`. All memory of
/// the device but for the runs of lanes, `begin`'s, is taken here. THROWS: cuda::OutOfDeviceMemory,
/// SystemError for want of pinned memory, and where there is no device.
[[nodiscard]] std::unique_ptr<FrozenMomentum> frozen_momentum_on_device(const InnerLoop& inner,
                                                                        const Codec& codec,
                                                                        std::size_t bucket_values,
                                                                        cuda::ResidentAdam& adam);

}  // namespace isthmus::outer
