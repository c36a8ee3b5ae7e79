// SPDX-License-Identifier: Apache-2.0
// Host mirrors of Adam's moments of a loop on a device (InnerLoop::adam_moments), in pinned memory,
// 8 bytes a parameter, made at the first request. Moments that were written entirely are copied to
// the device only when work there needs them, since a method that performs the update itself writes
// them in every step while no kernel reads them. Borrows the optimizer. One thread, on its device.
#pragma once

#include "inner/cuda/cuda_optimizer.h"
#include "inner/model/model_layout.h"
#include "isthmus/inner_loop.h"
#include "kernels/cuda/device.h"

namespace isthmus {

class CudaMoments {
 public:
  /// THROWS: ConfigError when the optimizer is not AdamW; SystemError, naming outer.method and the
  /// bytes, when the mirrors cannot be pinned.
  CudaMoments(const InnerConfig& config, const ModelLayout& layout, const CudaOptimizer& optimizer);

  [[nodiscard]] AdamMoments of(CanonicalRange elements) const;
  /// Makes the mirrors of `elements` valid. Blocks.
  void read(cuda::Stream& stream, CanonicalRange elements);
  /// The mirrors of `elements` were written. May queue a copy.
  void wrote(cuda::Stream& stream, CanonicalRange elements);
  /// Queues copies of all written moments that the device does not have yet.
  void settle(cuda::Stream& stream);
  /// The device has new moments; written moments that were not settled are dropped.
  void forget() { newer_ = Newer::kDevice; }

 private:
  enum class Newer { kDevice, kNeither, kMirror };
  void to_device(cuda::Stream& stream, CanonicalRange elements) const;

  const CudaOptimizer& optimizer_;
  CanonicalRange all_;
  cuda::PinnedArray<float> first_, second_;
  Newer newer_ = Newer::kDevice;
};

}  // namespace isthmus
