// SPDX-License-Identifier: Apache-2.0
// The seam: time, threads and waiting, handed in. SystemRuntime is the real machine; SimWorld runs
// the same code in virtual time, one task runnable at a time, so a run is a function of its seed.
//
// Rules that make both worlds possible: a task blocks only in `WaitQueue::wait`,
// `Runtime::sleep_until`, `Runtime::compute` and `Task::join`; shared state is touched only inside
// `WaitQueue::update` and the predicate of `WaitQueue::wait` (both hold the queue's lock); no lock
// is held across a wait.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "isthmus/types.h"

namespace isthmus {

class Clock {
 public:
  virtual ~Clock() = default;
  [[nodiscard]] virtual TimePoint now() const = 0;
};

/// A monitor: a lock and the tasks that wait for a change of the state it protects. The creator of
/// the queue owns that state.
class WaitQueue {
 public:
  virtual ~WaitQueue() = default;
  /// Runs `change` under the lock, then wakes the waiters. Does not block beyond the lock.
  virtual void update(const std::function<void()>& change) = 0;
  /// Blocks until `ready()`, asked under the lock by this or another task, or until `deadline`.
  /// RETURNS: the last value of `ready()`.
  virtual bool wait(const std::function<bool()>& ready, TimePoint deadline) = 0;
};

/// A spawned task. The destructor joins.
class Task {
 public:
  virtual ~Task() = default;
  /// Blocks until the task's function has returned. THROWS: the function's exception, once.
  virtual void join() = 0;
};

class Runtime {
 public:
  virtual ~Runtime() = default;
  [[nodiscard]] virtual const Clock& clock() const = 0;
  virtual void sleep_until(TimePoint time) = 0;
  [[nodiscard]] virtual std::unique_ptr<Task> spawn(std::string name,
                                                    std::function<void()> body) = 0;
  [[nodiscard]] virtual std::unique_ptr<WaitQueue> make_wait_queue() = 0;
  /// Runs `work`, which touches only the caller's state and calls nothing of this interface. In
  /// virtual time it lasts exactly `duration` (known at its start) while the real work runs
  /// concurrently with other workers' regions; in real time `duration` is ignored.
  virtual void compute(Duration duration, const std::function<void()>& work) = 0;
  /// True if time is virtual.
  [[nodiscard]] virtual bool simulated() const = 0;
};

}  // namespace isthmus
