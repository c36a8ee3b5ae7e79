// SPDX-License-Identifier: Apache-2.0
// A deterministic world in virtual time. Every task is a real thread, but only one runs at a time,
// and passes the baton on when it blocks; events are ordered by (virtual time, sequence number). So
// all events and their order are a function of the program and the seed, and blocking code that
// reads like the paper can be simulated unchanged.
//
// Compute regions are the exception to "one at a time": their end is known when they start, so
// other tasks may advance to that end, never past it, while the real work runs on up to `slots`
// cores.
//
// Threads: only the world's tasks call the members of Runtime. Every later task sees the writes of
// a task that has blocked; no locks are needed beyond the seam's.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "isthmus/errors.h"
#include "isthmus/runtime.h"

namespace isthmus {

class Scheduler;

struct SimWorldOptions {
  /// Compute regions whose real work runs at the same time; 0: the machine's number of cores.
  int slots = 0;
  /// Tasks that may run at the same time run in an order drawn from the seed, instead of first
  /// come, first served: for sweeps over interleavings.
  bool shuffle = false;
  /// More switches than this without progress of virtual time are reported as an error.
  std::uint64_t max_switches_per_instant = 10'000'000;
};

/// No task can run and no event is due, or virtual time does not progress. Names every task and its
/// wait.
class DeadlockError : public RunError {
 public:
  using RunError::RunError;
};

class SimWorld final : public Runtime {
 public:
  explicit SimWorld(std::uint64_t seed, const SimWorldOptions& options = {});
  ~SimWorld() override;

  /// Runs `body` on the calling thread as the world's first task, "main", until it and all spawned
  /// tasks are done. Once a world. THROWS: the exception of `body`; else that of a task that was
  /// not joined; DeadlockError.
  void run(const std::function<void()>& body);

  [[nodiscard]] const Clock& clock() const override;
  /// For a past time: lets ready tasks run first.
  void sleep_until(TimePoint time) override;
  [[nodiscard]] std::unique_ptr<Task> spawn(std::string name, std::function<void()> body) override;
  [[nodiscard]] std::unique_ptr<WaitQueue> make_wait_queue() override;
  void compute(Duration duration, const std::function<void()>& work) override;
  [[nodiscard]] bool simulated() const override { return true; }

  /// Calls `action` at `time` (now, if past), between tasks. It may update wait queues, schedule
  /// more and stop groups; it must not block. Its exception ends the run: every task unwinds with
  /// it, and `run` throws it. `kind` distinguishes actions in the trace.
  void at(TimePoint time, std::uint64_t kind, std::function<void()> action);
  /// As `spawn`, into a group of tasks that can be stopped together; tasks that they spawn belong
  /// to it. REQUIRES: group >= 0.
  [[nodiscard]] std::unique_ptr<Task> spawn_in_group(int group, std::string name,
                                                     std::function<void()> body);
  /// Makes every task of `group` throw `reason` from its present blocking call, or from its next
  /// one. While a stack unwinds, blocking calls return without blocking.
  void stop_group(int group, const std::exception_ptr& reason);
  /// The name of this queue in deadlock reports.
  void name_queue(WaitQueue& queue, std::string name);

  [[nodiscard]] std::uint64_t seed() const;
  /// Digest over (time, task, kind) of every event so far.
  [[nodiscard]] std::uint64_t trace_hash() const;
  /// How often the baton passed from one thread to another.
  [[nodiscard]] std::uint64_t switches() const;

 private:
  std::unique_ptr<Scheduler> scheduler_;
};

}  // namespace isthmus
