// SPDX-License-Identifier: Apache-2.0
// Work that a step queues again and again on a stream: queued kernel by kernel when its shape comes
// for the first time, recorded as a graph the second time, and launched from then on. The first
// time is needed: libraries choose plans and load code then, which no recording may contain.
//
// Graphs of the two shapes that came last are held. Numbers that change from step to step are no
// part of a shape: the work reads them from device memory. Where the device takes no graph, a line
// of the log says why, and the work goes on kernel by kernel. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/cuda/device.h"

namespace isthmus {

class RepeatedWork {
 public:
  /// Queues the work; events of marks are recorded behind what was queued so far.
  using Queue = std::function<void(const cuda::Graph::Mark&)>;
  /// name: of the work, for the log.
  explicit RepeatedWork(const char* name) : name_(name) {}

  /// shape: all that decides what `queue` queues. THROWS: what `queue` throws kernel by kernel.
  void run(cuda::Stream& stream, std::int64_t shape, const Queue& queue);
  /// Without a graph.
  static void by_hand(cuda::Stream& stream, const Queue& queue);

 private:
  struct Seen {
    std::int64_t shape = 0;
    std::unique_ptr<cuda::Graph> graph;  // once the shape has come twice
  };
  /// RETURNS: whether the device takes the graph.
  [[nodiscard]] bool record(cuda::Stream& stream, const Queue& queue);

  const char* name_;
  std::vector<Seen> seen_;  // the last one first
  bool refused_ = false;
};

}  // namespace isthmus
