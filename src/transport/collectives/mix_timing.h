// SPDX-License-Identifier: Apache-2.0
// Whether a mixed communicator, which chooses a back end by a table (mixed_communicator.h), is as
// fast as the best of its back ends. Each call is timed over all back ends and the mixed one in
// alternation, so that noise affects all alike. The mixed one uses the same back-end objects:
// memory of separate objects may be cached up to twice as well or badly. Each back end has a second
// set of turns. again_ratio(), the best one's second set over its first, shows the error of
// ratio(); it is biased upwards, since the best of several medians is a lucky one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "isthmus/runtime.h"
#include "transport/collectives/collective_timing.h"
#include "transport/collectives/communicator.h"
#include "transport/collectives/mixed_communicator.h"

namespace isthmus {

struct MixTiming {
  Operation operation = Operation::kNothing;
  std::int64_t bytes = 0;
  std::string best;  // back end with the least median
  double best_us = 0;
  double again_us = 0;  // median of the best one's second set
  double mixed_us = 0;  // median
  int repetitions = 0;  // of each contender

  [[nodiscard]] double ratio() const { return mixed_us / best_us; }
  [[nodiscard]] double again_ratio() const { return again_us / best_us; }
};

/// Collective over the ranks of `backends`; every rank gets the same result. Sizes: those of
/// time_collectives(), and the midpoints between them, for which a table has no times. THROWS:
/// CommunicatorError as make_mixed_communicator.
[[nodiscard]] std::vector<MixTiming> time_mix(std::vector<NamedCommunicator> backends,
                                              const MixTable& table, const Clock& clock,
                                              const CollectiveTimingOptions& options);

}  // namespace isthmus
