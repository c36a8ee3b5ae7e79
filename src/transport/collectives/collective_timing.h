// SPDX-License-Identifier: Apache-2.0
// Times of a communicator's operations, and their bound between threads: the bytes that must be
// read and written, over the rate at which the same ranks update separate memory at once.
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
  MeasuredCall call;             // median over the calls of the slowest rank's time
  double least_us = 0;           // the fastest call
  std::int64_t moved_bytes = 0;  // read and written by all ranks together
  double bound_us = 0;           // moved_bytes at the speed of memory; 0: unknown
  int repetitions = 0;
};

struct CollectiveTimingOptions {
  std::int64_t largest_bytes = 64 << 20;
  Duration each = std::chrono::milliseconds(200);  // approximate total time of the timed calls
};

/// Bytes of the timed calls: from 1 KiB on, doubling.
[[nodiscard]] std::vector<std::int64_t> timed_sizes(std::int64_t largest_bytes);

/// Collective; every rank gets the same times. Values are f32, of the timed_sizes().
[[nodiscard]] std::vector<CollectiveTiming> time_collectives(
    Communicator& ranks, const Clock& clock, const CollectiveTimingOptions& options);

/// The same for several back ends of the same ranks, in turns, without bounds: all times of one
/// back end, then those of the next.
[[nodiscard]] std::vector<CollectiveTiming> time_in_turns(
    const std::vector<NamedCommunicator>& backends, const Clock& clock,
    const CollectiveTimingOptions& options);

/// Sizes of the groups into which meshes of `ranks` ranks are split: 2 (the ends of a pipeline
/// share a table), and all divisors of `ranks`.
[[nodiscard]] std::vector<int> group_sizes(int ranks);

}  // namespace isthmus
