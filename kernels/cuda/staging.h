// SPDX-License-Identifier: Apache-2.0
// Copies values to a device from host memory that may change as soon as the call returns, such as
// rows that a source computes on request: through two pinned buffers, of which the CPU fills one
// while the device reads the other. Allocated at first use. One thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "kernels/cross_entropy.h"
#include "kernels/cuda/device.h"

namespace isthmus::cuda {

class Staging {
 public:
  /// Allocates the buffers now, so that no later call has to.
  void make() {
    for (Buffer& buffer : buffers_) {
      if (buffer.values.empty()) buffer.values = PinnedArray<float>(kValues);
    }
  }
  /// to[0, from.size()) := from. Blocks while the device still has to read both buffers.
  void put(Stream& stream, float* to, std::span<const float> from) {
    while (!from.empty()) {
      make();
      Buffer& buffer = buffers_[next_];
      next_ = 1 - next_;
      buffer.read.synchronize();
      const std::size_t count = std::min(from.size(), kValues);
      std::copy_n(from.data(), count, buffer.values.data());
      copy<float>(stream, to, buffer.values.data(), count);
      buffer.read.record(stream);
      from = from.subspan(count);
      to += count;
    }
  }

 private:
  // 2 MiB: the amount that a source gives at once.
  static constexpr auto kValues = static_cast<std::size_t>(kernels::kWeightRowsValues);
  struct Buffer {
    PinnedArray<float> values;
    Event read;
  };
  Buffer buffers_[2];
  std::size_t next_ = 0;
};

}  // namespace isthmus::cuda
