// SPDX-License-Identifier: Apache-2.0
// A communicator that measures the time that its rank spends in calls that wait for other ranks.
// The rest is computing time, and tells which of two ranks delays the other.
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

/// Calls of `inner`, and of communicators split from it, add their duration to `waited`. Started
/// operations run while the rank computes and do not count, but waiting for their end does. All
/// three are borrowed.
[[nodiscard]] std::unique_ptr<Communicator> make_waiting_communicator(Communicator& inner,
                                                                      const Clock& clock,
                                                                      WaitingTime& waited);

}  // namespace isthmus
