// SPDX-License-Identifier: Apache-2.0
#include "sim/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <stdexcept>
#include <string>
#include <system_error>

#include "core/base/check.h"
#include "core/base/deadline.h"
#include "sim/wait_queue.h"

namespace isthmus {
namespace {

thread_local SimTask* running_here = nullptr;  // the task this thread is
thread_local bool in_region = false;           // between begin and end of a region's real work

int default_slots() {
  const unsigned cores = std::thread::hardware_concurrency();
  return cores == 0 ? 1 : static_cast<int>(cores);
}

}  // namespace

void Baton::give() {
  {
    const std::scoped_lock lock(mutex_);
    here_ = true;
  }
  given_.notify_one();
}

void Baton::take() {
  std::unique_lock lock(mutex_);
  given_.wait(lock, [this] { return here_; });
  here_ = false;
}

Scheduler::Scheduler(std::uint64_t seed, const SimWorldOptions& options)
    : seed_(seed),
      options_(options),
      rng_(seed, Stream::kSim),
      tasks_{std::make_shared<SimTask>(*this, 0, -1, "main")},
      main_(*tasks_.front()),
      free_slots_(options.slots > 0 ? options.slots : default_slots()) {}

Scheduler::~Scheduler() {
  // Tasks spawned for a run that never came: let them end, so that their threads can be joined.
  if (started_ || tasks_.size() == 1) return;
  try {
    run([] {});
  } catch (const std::exception& error) {
    fmt::print(stderr, "isthmus: a task of a simulation that never ran failed: {}\n", error.what());
  }
}

void Scheduler::run(const std::function<void()>& body) {
  ISTHMUS_CHECK(!started_);
  started_ = true;
  SimTask* const outer = std::exchange(running_here, &main_);
  main_.state = SimTask::State::kRunning;
  turns_.last_run = &main_;
  std::exception_ptr error;
  try {
    body();
  } catch (...) {
    error = std::current_exception();
  }
  if (alive_ > 0) {
    draining_ = true;
    main_.state = SimTask::State::kJoining;
    block(main_);
  }
  main_.state = SimTask::State::kDone;
  running_here = outer;
  for (const auto& task : tasks_) {
    if (task->thread.joinable()) task->thread.join();
  }
  rethrow_failure(error);
}

void Scheduler::rethrow_failure(const std::exception_ptr& of_main) {
  if (failures_.earlier) std::rethrow_exception(failures_.earlier);
  if (of_main) std::rethrow_exception(of_main);
  if (failures_.ended_by) std::rethrow_exception(failures_.ended_by);
  for (SimTask* task : failures_.tasks) {
    if (task->error) std::rethrow_exception(std::exchange(task->error, nullptr));
  }
}

// --- tasks ---------------------------------------------------------------------------------------

SimTask& Scheduler::current_task(const char* call) const {
  if (running_here == nullptr || &running_here->scheduler != this) {
    throw std::logic_error(fmt::format(
        "{} called from a thread that is no task of this simulation: call it inside SimWorld::run",
        call));
  }
  return *running_here;
}

int Scheduler::current_group() const {
  return running_here != nullptr && &running_here->scheduler == this ? running_here->group : -1;
}

std::string Scheduler::current_name() const {
  return running_here != nullptr && &running_here->scheduler == this ? running_here->name
                                                                     : "outside";
}

void Scheduler::require_outside_region(const char* call) const {
  if (in_region) {
    throw std::logic_error(fmt::format(
        "{} called inside a compute region: the work of Runtime::compute may not use the runtime",
        call));
  }
}

std::shared_ptr<SimTask> Scheduler::spawn(int group, std::string name, std::function<void()> body) {
  auto task =
      std::make_shared<SimTask>(*this, static_cast<int>(tasks_.size()), group, std::move(name));
  for (const auto& [stopped_group, reason] : failures_.stopped_groups) {
    if (stopped_group == group) task->stop = reason;
  }
  if (failures_.ended_by) task->stop = failures_.ended_by;
  try {
    task->thread =
        std::thread([this, &self = *task, run = std::move(body)] { run_task(self, run); });
  } catch (const std::system_error& error) {
    throw SystemError(
        fmt::format("no thread for task '{}': {}; raise the limit on processes (ulimit -u) or use "
                    "fewer workers",
                    task->name, error.what()));
  }
  tasks_.push_back(task);
  ++alive_;
  note(EventKind::kSpawn, task->id);
  make_ready(*task);
  return task;
}

void Scheduler::run_task(SimTask& task, const std::function<void()>& body) {
  running_here = &task;
  task.baton.take();
  task.state = SimTask::State::kRunning;
  try {
    body();
  } catch (...) {
    task.error = std::current_exception();
    // A task that ended because it was told to has not failed.
    if (task.error != task.stop) failures_.tasks.push_back(&task);
  }
  task.state = SimTask::State::kDone;
  note(EventKind::kDone, task.id);
  --alive_;
  for (SimTask* joiner : task.joiners) make_ready(*joiner);
  if (draining_ && alive_ == 0) make_ready(main_);
  hand_to(next());
}

void Scheduler::join(SimTask& task) {
  SimTask& self = current_task("Task::join");
  while (task.state != SimTask::State::kDone) {
    task.joiners.push_back(&self);
    self.joins = &task;
    self.state = SimTask::State::kJoining;
    block(self);
    self.joins = nullptr;
  }
}

// --- the baton -----------------------------------------------------------------------------------

void Scheduler::hand_to(SimTask* task) {
  if (task != nullptr) task->baton.give();
}

void Scheduler::block(SimTask& task) {
  SimTask* const chosen = next();
  if (chosen != &task) {
    hand_to(chosen);
    task.baton.take();
  }
  task.state = SimTask::State::kRunning;
}

SimTask* Scheduler::next() {
  while (true) {
    if (!ready_.empty()) return take_ready();
    if (events_.empty()) {
      give_up("deadlock: nobody can run and no event is due");
      continue;
    }
    const auto first = events_.begin();
    if (first->second.kind == EventKind::kRegionEnd) {
      const std::scoped_lock lock(mutex_);
      if (!first->second.task->work_done) {
        stalled_on_ = first->second.task;
        return nullptr;
      }
    }
    fire(first);
  }
}

SimTask* Scheduler::take_ready() {
  if (turns_.resumes - turns_.resumes_before_instant > options_.max_switches_per_instant) {
    turns_.resumes_before_instant = turns_.resumes;
    give_up(fmt::format("livelock: {} switches and virtual time stands still",
                        options_.max_switches_per_instant));
  }
  std::size_t place = 0;
  if (options_.shuffle) place = rng_.below(ready_.size(), turns_.resumes);
  SimTask* const task = ready_[place];
  ready_.erase(ready_.begin() + static_cast<std::ptrdiff_t>(place));
  note(EventKind::kResume, task->id);
  ++turns_.resumes;
  if (task != turns_.last_run) ++turns_.switches;
  turns_.last_run = task;
  return task;
}

void Scheduler::fire(std::map<EventKey, Event>::iterator first) {
  const TimePoint time = first->first.first;
  const Event event = std::move(first->second);
  events_.erase(first);
  ISTHMUS_CHECK(time >= now_, time.time_since_epoch().count(), now_.time_since_epoch().count());
  if (time > now_) turns_.resumes_before_instant = turns_.resumes;
  now_ = time;
  note(event.kind, event.task != nullptr ? event.task->id : -1, event.detail);
  if (event.kind == EventKind::kAction) {
    try {
      event.action();
    } catch (...) {
      // It belongs to no task that could pass it on.
      stop_all(std::current_exception());
    }
    return;
  }
  event.task->has_timer = false;
  leave_queue(*event.task);
  make_ready(*event.task);
}

void Scheduler::make_ready(SimTask& task) {
  task.state = SimTask::State::kReady;
  ready_.push_back(&task);
}

void Scheduler::leave_queue(SimTask& task) {
  if (task.queue != nullptr) task.queue->remove(task);
  task.queue = nullptr;
}

// --- events --------------------------------------------------------------------------------------

void Scheduler::note(EventKind kind, int task, std::uint64_t detail) {
  hash_.add(static_cast<std::uint64_t>(now_.time_since_epoch().count()));
  hash_.add(static_cast<std::uint64_t>(kind) << 32 | static_cast<std::uint32_t>(task));
  if (detail != 0) hash_.add(detail);
}

EventKey Scheduler::push_event(TimePoint time, Event event) {
  const EventKey key{std::max(time, now_), ++sequence_};
  events_.emplace(key, std::move(event));
  return key;
}

void Scheduler::set_timer(SimTask& task, TimePoint time) {
  if (time == kNever) return;
  task.timer =
      push_event(time, {.kind = EventKind::kWake, .task = &task, .detail = 0, .action = {}});
  task.has_timer = true;
}

void Scheduler::cancel_timer(SimTask& task) {
  if (task.has_timer) events_.erase(task.timer);
  task.has_timer = false;
}

void Scheduler::at(TimePoint time, std::uint64_t kind, std::function<void()> action) {
  push_event(
      time,
      {.kind = EventKind::kAction, .task = nullptr, .detail = kind, .action = std::move(action)});
}

// --- blocking calls ------------------------------------------------------------------------------

void Scheduler::sleep_until(TimePoint time) {
  SimTask& task = current_task("Runtime::sleep_until");
  if (stopped(task)) return;
  if (time <= now_) {
    make_ready(task);
  } else {
    task.state = SimTask::State::kSleeping;
    set_timer(task, time);
  }
  block(task);
  stopped(task);
}

bool Scheduler::wait(SimWaitQueue& queue, const std::function<bool()>& ready, TimePoint deadline) {
  SimTask& task = current_task("WaitQueue::wait");
  if (stopped(task)) return ready();
  if (ready()) return true;
  if (deadline <= now_) {
    // A task that polls lets the others run, or nothing would ever change.
    make_ready(task);
    block(task);
    stopped(task);
    return ready();
  }
  task.state = SimTask::State::kWaiting;
  task.queue = &queue;
  task.ready = &ready;
  task.satisfied = false;
  queue.add(task);
  set_timer(task, deadline);
  block(task);
  task.ready = nullptr;
  if (task.wait_error) std::rethrow_exception(std::exchange(task.wait_error, nullptr));
  stopped(task);
  return task.satisfied || ready();
}

void Scheduler::satisfy(SimTask& task) {
  task.satisfied = true;
  task.queue = nullptr;  // The queue has already let it go.
  cancel_timer(task);
  make_ready(task);
}

void Scheduler::compute(Duration duration, const std::function<void()>& work) {
  ISTHMUS_CHECK(duration >= Duration::zero(), duration.count());
  SimTask& task = current_task("Runtime::compute");
  if (stopped(task)) return;
  task.state = SimTask::State::kComputing;
  task.work_done = false;
  const EventKey end =
      push_event(deadline_after(now_, duration),
                 {.kind = EventKind::kRegionEnd, .task = &task, .detail = 0, .action = {}});
  hand_to(next());
  const std::exception_ptr error = run_work(task, end, work);
  task.state = SimTask::State::kRunning;
  stopped(task);
  if (error) std::rethrow_exception(error);
}

std::exception_ptr Scheduler::run_work(SimTask& task, const EventKey& end,
                                       const std::function<void()>& work) {
  // From here to the baton's return this thread runs beside the baton's holder.
  {
    std::unique_lock lock(mutex_);
    if (free_slots_ > 0) {
      --free_slots_;
    } else {
      slot_waiters_.emplace(end, &task);
      lock.unlock();
      task.baton.take();
    }
  }
  std::exception_ptr error;
  in_region = true;
  try {
    work();
  } catch (...) {
    error = std::current_exception();
  }
  in_region = false;
  SimTask* granted = nullptr;
  bool stalled = false;
  {
    const std::scoped_lock lock(mutex_);
    task.work_done = true;
    if (slot_waiters_.empty()) {
      ++free_slots_;
    } else {
      granted = slot_waiters_.extract(slot_waiters_.begin()).mapped();
    }
    stalled = stalled_on_ == &task;
    if (stalled) stalled_on_ = nullptr;
  }
  hand_to(granted);
  SimTask* const chosen = stalled ? next() : nullptr;
  if (chosen != &task) {
    hand_to(chosen);
    task.baton.take();
  }
  return error;
}

bool Scheduler::stopped(const SimTask& task) const {
  if (!task.stop) return false;
  if (std::uncaught_exceptions() > 0) return true;
  std::rethrow_exception(task.stop);
}

void Scheduler::stop(SimTask& task, const std::exception_ptr& reason) {
  if (task.state == SimTask::State::kDone) return;
  if (!task.stop) task.stop = reason;
  if (task.state == SimTask::State::kSleeping || task.state == SimTask::State::kWaiting) {
    cancel_timer(task);
    leave_queue(task);
    make_ready(task);
  }
}

void Scheduler::stop_group(int group, const std::exception_ptr& reason) {
  failures_.stopped_groups.emplace_back(group, reason);
  for (const auto& task : tasks_) {
    if (task->group == group) stop(*task, reason);
  }
}

void Scheduler::stop_all(const std::exception_ptr& reason) {
  if (!failures_.ended_by) {
    failures_.ended_by = reason;
    for (const SimTask* task : failures_.tasks) {
      if (!failures_.earlier) failures_.earlier = task->error;
    }
  }
  for (const auto& task : tasks_) stop(*task, failures_.ended_by);
}

void Scheduler::give_up(const std::string& headline) {
  std::string text =
      fmt::format("{}, at virtual time {:.9g} s:", headline, in_seconds(now_.time_since_epoch()));
  for (const auto& task : tasks_) {
    if (task->state != SimTask::State::kDone || task->error) text += describe(*task);
  }
  stop_all(std::make_exception_ptr(DeadlockError(text)));
  // Left: tasks that join one another in a ring. They cannot be unwound.
  ISTHMUS_CHECK(!ready_.empty(), text);
}

std::string Scheduler::describe(const SimTask& task) const {
  const auto until = [&] {
    return task.has_timer
               ? fmt::format("until {:.9g} s", in_seconds(task.timer.first.time_since_epoch()))
               : std::string("for ever");
  };
  switch (task.state) {
    case SimTask::State::kReady:
      return fmt::format(" {} may run;", task.name);
    case SimTask::State::kRunning:
      return fmt::format(" {} runs;", task.name);
    case SimTask::State::kComputing:
      return fmt::format(" {} computes;", task.name);
    case SimTask::State::kSleeping:
      return fmt::format(" {} sleeps {};", task.name, until());
    case SimTask::State::kWaiting:
      return fmt::format(" {} waits {} in {};", task.name, until(), task.queue->name());
    case SimTask::State::kJoining:
      return fmt::format(" {} joins {};", task.name,
                         task.joins != nullptr ? task.joins->name : "all tasks");
    case SimTask::State::kDone:
      break;
  }
  try {
    std::rethrow_exception(task.error);
  } catch (const std::exception& error) {
    return fmt::format(" {} failed: {};", task.name, error.what());
  } catch (...) {
    return fmt::format(" {} failed;", task.name);
  }
}

}  // namespace isthmus
