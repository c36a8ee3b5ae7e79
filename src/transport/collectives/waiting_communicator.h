// SPDX-License-Identifier: Apache-2.0
// A communicator that counts how long its rank is inside calls that wait for other ranks. What it
// is not in there, a rank computes: which of two ranks holds the other up shows in that.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "isthmus/runtime.h"
#include "transport/collectives/communicator.h"

namespace isthmus {

class WaitingTime {
 public:
  [[nodiscard]] Duration total() const { return Duration(total_.load(std::memory_order_relaxed)); }
  void add(Duration time) { total_.fetch_add(time.count(), std::memory_order_relaxed); }

 private:
  std::atomic<Duration::rep> total_{0};
};

/// Calls of `inner`, and of the communicators split from it, add the time until they return to
/// `waited`. What is started runs beside the rank's computing and is not counted, but waiting for
/// its end is. All three are borrowed.
[[nodiscard]] std::unique_ptr<Communicator> make_waiting_communicator(Communicator& inner,
                                                                      const Clock& clock,
                                                                      WaitingTime& waited);

}  // namespace isthmus
