// SPDX-License-Identifier: Apache-2.0
// The baton and the event queue of SimWorld.
//
// The holder of the baton owns all unmarked state here: the running task, or a compute region's
// thread that finds the world waiting for it. The baton passes through `Baton::give`/`take` or
// `mutex_`, which order the accesses. Only state that regions share while they run along with the
// holder is under `mutex_`.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/rng.h"
#include "isthmus/runtime.h"
#include "sim/trace_hash.h"
#include "sim/world.h"

namespace isthmus {

class SimWaitQueue;

/// The right to run, passed from thread to thread.
class Baton {
 public:
  void give();
  /// Blocks until the right is given.
  void take();

 private:
  std::mutex mutex_;
  std::condition_variable given_;
  bool here_ = false;
};

/// (virtual time, sequence number): the order of events.
using EventKey = std::pair<TimePoint, std::uint64_t>;

struct SimTask {
  enum class State { kReady, kRunning, kSleeping, kWaiting, kJoining, kComputing, kDone };

  SimTask(const Scheduler& owner, int number, int of_group, std::string title)
      : scheduler(owner), id(number), group(of_group), name(std::move(title)) {}

  const Scheduler& scheduler;
  const int id;
  const int group;  // -1: none
  const std::string name;
  std::thread thread;  // none for the first task
  Baton baton;

  State state = State::kReady;
  EventKey timer;  // key of its event, while it has one
  bool has_timer = false;
  SimWaitQueue* queue = nullptr;  // kWaiting
  const std::function<bool()>* ready = nullptr;
  bool satisfied = false;
  std::exception_ptr wait_error;   // thrown by `ready`
  const SimTask* joins = nullptr;  // kJoining
  std::exception_ptr stop;         // to throw from blocking calls except join
  std::vector<SimTask*> joiners;
  std::exception_ptr error;  // thrown by its body; taken by join
  bool work_done = false;    // kComputing; under Scheduler::mutex_
};

class Scheduler final : public Clock {
 public:
  Scheduler(std::uint64_t seed, const SimWorldOptions& options);
  ~Scheduler() override;

  void run(const std::function<void()>& body);
  std::shared_ptr<SimTask> spawn(int group, std::string name, std::function<void()> body);
  /// Group of the calling task, -1 outside tasks.
  [[nodiscard]] int current_group() const;
  /// Blocks until `task` is done and does not throw its error. A stop of the caller does not end
  /// the wait: one that ends the whole run reaches the joined task too, one of a group reaches a
  /// joined task of that group.
  void join(SimTask& task);
  void sleep_until(TimePoint time);
  void compute(Duration duration, const std::function<void()>& work);
  void at(TimePoint time, std::uint64_t kind, std::function<void()> action);
  void stop_group(int group, const std::exception_ptr& reason);

  /// Blocks the calling task in `queue`, until `deadline` at the latest. RETURNS: whether `ready`
  /// became true. THROWS: the error of `ready`; the task's stop.
  bool wait(SimWaitQueue& queue, const std::function<bool()>& ready, TimePoint deadline);
  /// A waiter's condition holds (or has thrown): the waiter may run.
  void satisfy(SimTask& task);
  /// THROWS: std::logic_error when called from inside a compute region.
  void require_outside_region(const char* call) const;

  [[nodiscard]] TimePoint now() const override {
    require_outside_region("Clock::now");
    return now_;
  }
  [[nodiscard]] std::uint64_t seed() const { return seed_; }
  [[nodiscard]] std::uint64_t trace_hash() const { return hash_.value(); }
  [[nodiscard]] std::uint64_t switches() const { return turns_.switches; }
  /// "main", "worker-3": the calling task's name.
  [[nodiscard]] std::string current_name() const;
  int next_queue_number() { return queues_++; }

 private:
  enum class EventKind : std::uint64_t { kWake = 1, kRegionEnd, kAction, kResume, kSpawn, kDone };
  struct Event {
    EventKind kind = EventKind::kWake;
    SimTask* task = nullptr;   // kWake, kRegionEnd
    std::uint64_t detail = 0;  // kAction: the argument of `at`
    std::function<void()> action;
  };

  /// Causes that end tasks or the whole run early.
  struct Failures {
    std::vector<std::pair<int, std::exception_ptr>> stopped_groups;
    std::vector<SimTask*> tasks;  // tasks whose bodies threw; in virtual-time order
    std::exception_ptr ended_by;  // why all tasks were told to stop
    std::exception_ptr earlier;   // the failure of a task before that
  };
  /// Counts of task runs.
  struct Turns {
    std::uint64_t switches = 0;
    std::uint64_t resumes = 0;
    std::uint64_t resumes_before_instant = 0;  // `resumes` when virtual time last advanced
    const SimTask* last_run = nullptr;
  };

  SimTask& current_task(const char* call) const;
  void note(EventKind kind, int task, std::uint64_t detail = 0);
  EventKey push_event(TimePoint time, Event event);
  void set_timer(SimTask& task, TimePoint time);
  void cancel_timer(SimTask& task);
  void make_ready(SimTask& task);
  void leave_queue(SimTask& task);
  /// Gives up the baton in the state that the task has set; returns when the task has it again.
  void block(SimTask& task);
  /// The next task to run. Null if the world must first wait for a compute region, whose thread
  /// then continues scheduling.
  SimTask* next();
  SimTask* take_ready();
  void fire(std::map<EventKey, Event>::iterator first);
  static void hand_to(SimTask* task);
  std::exception_ptr run_work(SimTask& task, const EventKey& end,
                              const std::function<void()>& work);
  void run_task(SimTask& task, const std::function<void()>& body);
  /// RETURNS: true when the blocking call must return at once because the stack is unwinding.
  /// THROWS: the task's stop.
  bool stopped(const SimTask& task) const;
  void stop(SimTask& task, const std::exception_ptr& reason);
  /// Reports a deadlock or livelock and ends the run.
  void give_up(const std::string& headline);
  /// Makes every task unwind with `reason`, which `run` then throws.
  void stop_all(const std::exception_ptr& reason);
  [[nodiscard]] std::string describe(const SimTask& task) const;
  void rethrow_failure(const std::exception_ptr& of_main);

  const std::uint64_t seed_;
  const SimWorldOptions options_;
  const Rng rng_;
  TimePoint now_{};
  std::uint64_t sequence_ = 0;
  std::map<EventKey, Event> events_;
  std::deque<SimTask*> ready_;
  std::vector<std::shared_ptr<SimTask>> tasks_;  // co-owned by the handles that spawn returned
  SimTask& main_;
  bool started_ = false;
  bool draining_ = false;  // main has returned and waits for the others
  int alive_ = 0;          // tasks not yet done, main excluded
  int queues_ = 0;
  Failures failures_;
  TraceHash hash_;
  Turns turns_;

  std::mutex mutex_;
  SimTask* stalled_on_ = nullptr;              // under mutex_
  int free_slots_;                             // under mutex_
  std::map<EventKey, SimTask*> slot_waiters_;  // under mutex_; earliest end first
};

}  // namespace isthmus
