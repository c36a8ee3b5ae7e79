// SPDX-License-Identifier: Apache-2.0
// Times one call over several communicators of the same ranks in alternation, so that noise of the
// machine affects all alike. One untimed call before each timed one warms the caches.
#pragma once

#include <vector>

#include "isthmus/runtime.h"
#include "transport/collectives/collective_cases.h"
#include "transport/collectives/communicator.h"

namespace isthmus {

class CollectiveTurns {
 public:
  struct Times {
    std::vector<double> median_us, least_us;  // by communicator; of the slowest rank
    int repetitions = 0;                      // of each communicator
  };
  /// The communicators are borrowed. each: approximate total time of the timed calls on each one.
  CollectiveTurns(std::vector<Communicator*> communicators, const Clock& clock, Duration each);

  /// Collective; every rank gets the same times. Short calls are timed several at a time.
  [[nodiscard]] Times time(const CollectiveCase& call);

 private:
  [[nodiscard]] Communicator& common() { return *communicators_.front(); }
  /// RETURNS: mean microseconds a call over `calls` calls.
  double sample(const CollectiveCase& call, Communicator& on, int calls);

  const std::vector<Communicator*> communicators_;
  const Clock& clock_;
  const Duration each_;
};

}  // namespace isthmus
