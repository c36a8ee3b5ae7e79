// SPDX-License-Identifier: Apache-2.0
// How long the operations of a communicator take, and what bounds them between threads: the bytes
// that must be read and written, over what the same ranks read and write at once when each updates
// memory of its own.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "isthmus/runtime.h"
#include "transport/collectives/communicator.h"
#include "transport/collectives/mix_table.h"
#include "transport/collectives/mixed_communicator.h"

namespace isthmus {

struct CollectiveTiming {
  MeasuredCall call;             // median of the slowest rank of each call
  double least_us = 0;           // the fastest call
  std::int64_t moved_bytes = 0;  // read and written by all ranks together
  double bound_us = 0;           // moved_bytes at the speed of memory; 0: not known
  int repetitions = 0;
};

struct CollectiveTimingOptions {
  std::int64_t largest_bytes = 64 << 20;
  Duration each = std::chrono::milliseconds(200);  // of timed calls, about
};

/// Bytes of the calls that are timed: from 1 KiB on, each twice the one before.
[[nodiscard]] std::vector<std::int64_t> timed_sizes(std::int64_t largest_bytes);

/// Collective; every rank gets the same. Values are f32, of the timed_sizes().
[[nodiscard]] std::vector<CollectiveTiming> time_collectives(
    Communicator& ranks, const Clock& clock, const CollectiveTimingOptions& options);

/// The same of several back ends of the same ranks, in turns, without bounds: all times of a back
/// end, then those of the next.
[[nodiscard]] std::vector<CollectiveTiming> time_in_turns(
    const std::vector<NamedCommunicator>& backends, const Clock& clock,
    const CollectiveTimingOptions& options);

/// Of the groups that meshes of `ranks` ranks are split into: 2 (the ends of a pipeline share a
/// table), and all that divide them.
[[nodiscard]] std::vector<int> group_sizes(int ranks);

}  // namespace isthmus
