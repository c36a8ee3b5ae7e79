// SPDX-License-Identifier: Apache-2.0
// The scheduler's ways to end tasks from outside: groups that crash, deadlocks that are reported.
#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <string>

#include "core/check.h"
#include "sim/scheduler.h"
#include "sim/wait_queue.h"

namespace isthmus {

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
  stopped_groups_.emplace_back(group, reason);
  for (const auto& task : tasks_) {
    if (task->group == group) stop(*task, reason);
  }
}

void Scheduler::stop_all(const std::exception_ptr& reason) {
  if (!ended_by_) {
    ended_by_ = reason;
    for (const SimTask* task : failed_) {
      if (!earlier_failure_) earlier_failure_ = task->error;
    }
  }
  for (const auto& task : tasks_) stop(*task, ended_by_);
}

void Scheduler::give_up(const std::string& headline) {
  std::string text = fmt::format("{}, at virtual time {:.9g} s:", headline,
                                 std::chrono::duration<double>(now_.time_since_epoch()).count());
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
               ? fmt::format(
                     "until {:.9g} s",
                     std::chrono::duration<double>(task.timer.first.time_since_epoch()).count())
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
