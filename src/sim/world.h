// SPDX-License-Identifier: Apache-2.0
// A deterministic world in virtual time. Every task is a real thread, but one at a time runs and
// hands the baton on when it blocks; events are ordered by (virtual time, sequence number). So what
// happens, and in which order, is a function of the program and the seed, and blocking code that
// reads like the paper can be simulated as it stands.
//
// Compute regions are the exception to "one at a time": their end is known when they start, so the
// others may advance to that end, never past it, while the real work runs on up to `slots` cores.
//
// Threads: the members of Runtime are called by the world's tasks only. What one task writes before
// it blocks, every later one sees; no locks are needed beyond the seam's.
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
  /// Compute regions whose real work runs at the same time; 0: as many as the machine has cores.
  int slots = 0;
  /// Tasks that may run at the same instant run in an order drawn from the seed, in place of first
  /// come, first served: for sweeps over interleavings.
  bool shuffle = false;
  /// More switches than this without virtual time going on are reported as an error.
  std::uint64_t max_switches_per_instant = 10'000'000;
};

/// Nobody can run and no event is due, or virtual time stands still. Names every task and what it
/// waits for.
class DeadlockError : public RunError {
 public:
  using RunError::RunError;
};

class SimWorld final : public Runtime {
 public:
  explicit SimWorld(std::uint64_t seed, const SimWorldOptions& options = {});
  ~SimWorld() override;

  /// Runs `body` on the calling thread as the world's first task, "main", until it and all it has
  /// spawned are done. Once per world.
  /// THROWS: what `body` threw; else what a task threw that nobody joined; DeadlockError.
  void run(const std::function<void()>& body);

  [[nodiscard]] const Clock& clock() const override;
  /// A time that is past lets the tasks that are ready go first.
  void sleep_until(TimePoint time) override;
  [[nodiscard]] std::unique_ptr<Task> spawn(std::string name, std::function<void()> body) override;
  [[nodiscard]] std::unique_ptr<WaitQueue> make_wait_queue() override;
  void compute(Duration duration, const std::function<void()>& work) override;
  [[nodiscard]] bool simulated() const override { return true; }

  /// Calls `action` at `time` (now, if past), between tasks. It may update wait queues, schedule
  /// more and stop groups; it must not block. What it throws ends the run: every task unwinds with
  /// it, and `run` throws it. `kind` tells actions apart in the trace.
  void at(TimePoint time, std::uint64_t kind, std::function<void()> action);
  /// As `spawn`, into a group of tasks that can be stopped together; what they spawn belongs to it.
  /// REQUIRES: group >= 0.
  [[nodiscard]] std::unique_ptr<Task> spawn_in_group(int group, std::string name,
                                                     std::function<void()> body);
  /// Makes every task of `group` throw `reason` from the call it is blocked in, or from its next
  /// blocking call. While a stack unwinds, blocking calls return without blocking.
  void stop_group(int group, const std::exception_ptr& reason);
  /// What a deadlock report calls this queue of this world.
  void name_queue(WaitQueue& queue, std::string name);

  [[nodiscard]] std::uint64_t seed() const;
  /// Digest over (time, task, kind) of every event so far.
  [[nodiscard]] std::uint64_t trace_hash() const;
  /// Times the baton went from one thread to another.
  [[nodiscard]] std::uint64_t switches() const;

 private:
  std::unique_ptr<Scheduler> scheduler_;
};

}  // namespace isthmus
