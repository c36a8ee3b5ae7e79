// SPDX-License-Identifier: Apache-2.0
#include "sim/wait_queue.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/check.h"
#include "sim/scheduler.h"

namespace isthmus {

SimWaitQueue::SimWaitQueue(Scheduler& scheduler)
    : scheduler_(scheduler),
      name_(fmt::format("queue {} (made by {})", scheduler.next_queue_number(),
                        scheduler.current_name())) {}

SimWaitQueue::~SimWaitQueue() { ISTHMUS_CHECK(waiters_.empty(), name_); }

void SimWaitQueue::update(const std::function<void()>& change) {
  scheduler_.require_outside_region("WaitQueue::update");
  change();
  wake_ready();
}

void SimWaitQueue::wake_ready() {
  for (std::size_t i = 0; i < waiters_.size();) {
    SimTask& task = *waiters_[i];
    bool ready = true;
    try {
      ready = (*task.ready)();
    } catch (...) {
      task.wait_error = std::current_exception();
    }
    if (ready) {
      waiters_.erase(waiters_.begin() + static_cast<std::ptrdiff_t>(i));
      scheduler_.satisfy(task);
    } else {
      ++i;
    }
  }
}

bool SimWaitQueue::wait(const std::function<bool()>& ready, TimePoint deadline) {
  scheduler_.require_outside_region("WaitQueue::wait");
  return scheduler_.wait(*this, ready, deadline);
}

void SimWaitQueue::remove(SimTask& task) {
  const auto place = std::find(waiters_.begin(), waiters_.end(), &task);
  ISTHMUS_CHECK(place != waiters_.end(), name_, task.name);
  waiters_.erase(place);
}

}  // namespace isthmus
