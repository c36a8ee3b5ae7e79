// SPDX-License-Identifier: Apache-2.0
// Adam's moments of a loop on a device, as others see them on the host (InnerLoop::adam_moments):
// mirrors in pinned memory, 8 bytes a parameter, made once somebody asks for them. What is written
// whole goes to the device only when something there wants it, since a method that takes the update
// over writes them in every step, and no kernel reads them then.
// Borrows the optimizer. One thread, on its device.
#pragma once

#include "inner/cuda/cuda_optimizer.h"
#include "inner/model/model_layout.h"
#include "isthmus/inner_loop.h"
#include "kernels/cuda/device.h"

namespace isthmus {

class CudaMoments {
 public:
  /// THROWS: ConfigError when the optimizer is not AdamW; SystemError, naming outer.method and the
  /// bytes, where the mirrors cannot be pinned.
  CudaMoments(const InnerConfig& config, const ModelLayout& layout, const CudaOptimizer& optimizer);

  [[nodiscard]] AdamMoments of(CanonicalRange elements) const;
  /// The mirrors of `elements` are right. Blocks.
  void read(cuda::Stream& stream, CanonicalRange elements);
  /// Those of `elements` were written. May queue a copy.
  void wrote(cuda::Stream& stream, CanonicalRange elements);
  /// Queues what the device has not got of what was written.
  void settle(cuda::Stream& stream);
  /// The device has other moments now, and what was written and not settled is of no use.
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
