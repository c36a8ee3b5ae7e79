// SPDX-License-Identifier: Apache-2.0
// Times one call over several communicators of the same ranks in turns, so that what else the
// machine does meets all alike, and so do caches: each finds there what it has left itself, since
// a call that is not timed goes before.
#pragma once

#include <vector>

#include "isthmus/runtime.h"
#include "transport/collectives/collective_cases.h"
#include "transport/collectives/communicator.h"

namespace isthmus {

class CollectiveTurns {
 public:
  struct Times {
    std::vector<double> median_us, least_us;  // of each communicator; the slowest rank's calls
    int repetitions = 0;                      // of each
  };
  /// The communicators are borrowed. each: of timed calls over each of them, about.
  CollectiveTurns(std::vector<Communicator*> communicators, const Clock& clock, Duration each);

  /// Collective; every rank gets the same. Short calls are timed several at a time.
  [[nodiscard]] Times time(const CollectiveCase& call);

 private:
  [[nodiscard]] Communicator& common() { return *communicators_.front(); }
  /// RETURNS: microseconds a call, of so many.
  double sample(const CollectiveCase& call, Communicator& on, int calls);

  const std::vector<Communicator*> communicators_;
  const Clock& clock_;
  const Duration each_;
};

}  // namespace isthmus
