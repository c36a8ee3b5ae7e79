// SPDX-License-Identifier: Apache-2.0
// The other ranks of a mesh of devices, as the loop of one of them sees them: each rank trains on
// its samples of a step, and all update alike with the sums of their gradients.
//
// Every rank makes the same calls in the same order, each on a thread of its own.
// THROWS: CommunicatorError naming rank and operation where another rank does not come, has failed
// or cannot be reached; the mesh has then ended.
#pragma once

#include <cstdint>
#include <span>

#include "isthmus/types.h"

namespace isthmus {

class CudaPeers {
 public:
  virtual ~CudaPeers() = default;
  /// Targets of step t that count, of all ranks' samples. Waits for nobody.
  [[nodiscard]] virtual std::int64_t targets(StepIndex t) = 0;
  /// values, in the rank's device memory, := their sums over the ranks, the same bits on all of
  /// them. What writes them must have ended. Blocks until the sums are there.
  virtual void sum_on_device(std::span<float> values) = 0;
  /// The same in host memory, in rank order.
  virtual void sum(std::span<double> values) = 0;
};

}  // namespace isthmus
