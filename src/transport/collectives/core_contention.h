// SPDX-License-Identifier: Apache-2.0
// Learns whether a waiting rank shares its core with other work, from how long its yields take. A
// yield costs nothing where a rank has a core alone. Beside a busy program, Linux runs that program
// for a whole time slice, or for several (since 6.18 a thread that yields forfeits the rest of its
// slice), so a wait of microseconds lasts milliseconds. A thread that sleeps forfeits nothing. So
// after a long yield the next waits sleep at once, and a wait tries to yield again later: the
// longer the core has been contended, the later.
//
// A group of ranks owns one; any thread of the group may call it. Pure, but for yield().
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "isthmus/runtime.h"

namespace isthmus {

class CoreContention {
 public:
  /// A longer yield means that another program had the core.
  static constexpr Duration kLongYield = std::chrono::microseconds(100);
  /// Waits without a yield after the first long yield, and after many of them.
  static constexpr int kFewestWaits = 16;
  static constexpr int kMostWaits = 1024;

  /// Call once at the begin of a wait. RETURNS: whether it may yield between its looks.
  [[nodiscard]] bool may_yield() {
    const int left = left_.load(std::memory_order_relaxed);
    if (left > 0) {
      left_.store(left - 1, std::memory_order_relaxed);
      return false;
    }
    const int next = next_.load(std::memory_order_relaxed);
    next_.store(std::max(next / 2, kFewestWaits), std::memory_order_relaxed);
    return true;
  }
  /// Takes note of a yield that took `took`; of long ones that come together, from several threads
  /// or in one wait, of the first alone.
  void note_yield(Duration took) {
    if (took < kLongYield) return;
    const int next = next_.load(std::memory_order_relaxed);
    int none = 0;
    if (!left_.compare_exchange_strong(none, std::min(next, kMostWaits))) return;
    next_.store(std::min(4 * next, 2 * kMostWaits), std::memory_order_relaxed);  // halved at once
  }
  /// Yields, and takes note of it.
  void yield(const Clock& clock) {
    const TimePoint begin = clock.now();
    std::this_thread::yield();
    note_yield(clock.now() - begin);
  }

 private:
  // Threads may overwrite each other's counts; then some waits more or less yield.
  std::atomic<int> left_{0};             // waits that do not yield
  std::atomic<int> next_{kFewestWaits};  // the same after the next long yield, before it is halved
};

}  // namespace isthmus
