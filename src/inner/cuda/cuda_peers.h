// SPDX-License-Identifier: Apache-2.0
// The other ranks of a mesh of devices, as the loop of one of them sees them: each rank trains on
// its samples of a step, and all update alike with the sums of their gradients.
//
// Every rank makes the same calls in the same order, each on a thread of its own.
// THROWS: CommunicatorError naming rank and operation where another rank does not come, has failed
// or cannot be reached, DeviceLost where this rank's device has failed; the mesh has then ended.
#pragma once

#include <cstdint>
#include <span>

#include "isthmus/types.h"
#include "kernels/cuda/device.h"

namespace isthmus {

/// Gradients that become final together: values in the rank's device memory, and the event behind
/// which they are.
struct CudaBucket {
  std::span<float> values;
  const cuda::Event* final_ = nullptr;
};

class CudaPeers {
 public:
  virtual ~CudaPeers() = default;
  /// Targets of step t that count, of all ranks' samples. Waits for nobody.
  [[nodiscard]] virtual std::int64_t targets(StepIndex t) = 0;
  /// Each bucket's values := their sums over the ranks, the same bits on all of them, one bucket
  /// after another, each once it is final. REQUIRES: all events are recorded. Blocks until the sums
  /// are there.
  virtual void sum_on_device(std::span<const CudaBucket> buckets) = 0;
  /// The same in host memory, in rank order.
  virtual void sum(std::span<double> values) = 0;
};

}  // namespace isthmus
