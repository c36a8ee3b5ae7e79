// SPDX-License-Identifier: Apache-2.0
// Whether a mixed communicator keeps up with the best of its back ends: each call is timed over all
// of them and over the mixed one, in turns, so that what else the machine does meets all alike. The
// mixed one goes by way of those same back ends: another group's memory may lie where the caches
// serve it twice as fast, or half. Each back end has a second set of turns too: by how much the
// best of the first set then differs from itself is what a ratio of the mixed one may be off by,
// the more so since the best of several medians is one that chance has been kind to.
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
  std::string best;  // back end of the least median
  double best_us = 0;
  double again_us = 0;  // the best one's second set
  double mixed_us = 0;  // median, as are all
  int repetitions = 0;  // of each

  [[nodiscard]] double ratio() const { return mixed_us / best_us; }
  [[nodiscard]] double again_ratio() const { return again_us / best_us; }
};

/// Collective over the ranks of `backends`; every rank gets the same. Sizes are those of
/// time_collectives() and the ones in the middle between them, for which a table has no times.
/// Throws CommunicatorError as make_mixed_communicator does.
[[nodiscard]] std::vector<MixTiming> time_mix(std::vector<NamedCommunicator> backends,
                                              const MixTable& table, const Clock& clock,
                                              const CollectiveTimingOptions& options);

}  // namespace isthmus
