// SPDX-License-Identifier: Apache-2.0
// The other ranks of a mesh of devices, from the loop of one rank: each rank trains on its samples
// of a step, and all make the same update with the sums of their gradients.
//
// Every rank makes the same calls in the same order, each on its own thread. THROWS:
// CommunicatorError naming rank and operation when another rank does not call, has failed or cannot
// be reached; DeviceLost when this rank's device has failed. The mesh must not be used afterwards.
#pragma once

#include <cstdint>
#include <span>

#include "isthmus/types.h"
#include "kernels/cuda/device.h"

namespace isthmus {

/// Gradients that become final together: values in the rank's device memory, and the event after
/// which they are final.
struct CudaBucket {
  std::span<float> values;
  const cuda::Event* final_ = nullptr;
};

class CudaPeers {
 public:
  virtual ~CudaPeers() = default;
  /// Number of step t's targets that count, over all ranks' samples. Does not block.
  [[nodiscard]] virtual std::int64_t targets(StepIndex t) = 0;
  /// Each bucket's values := their sums over the ranks, the same bits on all of them; buckets in
  /// order, each once it is final. REQUIRES: all events are recorded. Blocks until the sums are
  /// present.
  virtual void sum_on_device(std::span<const CudaBucket> buckets) = 0;
  /// The same for values in host memory, in rank order.
  virtual void sum(std::span<double> values) = 0;
};

}  // namespace isthmus
