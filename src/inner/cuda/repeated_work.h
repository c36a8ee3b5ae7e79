// SPDX-License-Identifier: Apache-2.0
// Cache of CUDA graphs for work that a step queues repeatedly on a stream: the first time a shape
// occurs the work is queued kernel by kernel, the second time it is captured as a graph, and from
// then on launched. The first run is needed because libraries then choose plans and load code,
// which must not happen during capture.
//
// Holds graphs of the last two shapes. Numbers that change from step to step are not part of a
// shape: the work reads them from device memory. If the device rejects a graph, one log line gives
// the reason, and the work continues kernel by kernel. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/cuda/device.h"

namespace isthmus {

class RepeatedWork {
 public:
  /// Queues the work; records events of marks after the work queued so far.
  using Queue = std::function<void(const cuda::Graph::Mark&)>;
  /// name: of the work, in the log.
  explicit RepeatedWork(const char* name) : name_(name) {}

  /// shape: must identify all that `queue` queues. THROWS: exceptions of `queue` when it queues
  /// kernel by kernel.
  void run(cuda::Stream& stream, std::int64_t shape, const Queue& queue);
  /// Queues the work without a graph.
  static void by_hand(cuda::Stream& stream, const Queue& queue);

 private:
  struct Seen {
    std::int64_t shape = 0;
    std::unique_ptr<cuda::Graph> graph;  // set once the shape has occurred twice
  };
  /// RETURNS: true if the device accepts the graph.
  [[nodiscard]] bool record(cuda::Stream& stream, const Queue& queue);

  const char* name_;
  std::vector<Seen> seen_;  // the most recent first
  bool refused_ = false;
};

}  // namespace isthmus
