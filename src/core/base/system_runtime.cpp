// SPDX-License-Identifier: Apache-2.0
#include "core/base/system_runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

// Waits are cut into slices, so that a deadline of kNever cannot overflow the clock's arithmetic.
constexpr Duration kLongestSlice = std::chrono::hours(1);

class SystemWaitQueue final : public WaitQueue {
 public:
  explicit SystemWaitQueue(const Clock& clock) : clock_(clock) {}

  void update(const std::function<void()>& change) override {
    bool some_ready = false;
    {
      const std::scoped_lock lock(mutex_);
      change();
      some_ready = ask_waiters();
    }
    if (some_ready) changed_.notify_all();
  }

  bool wait(const std::function<bool()>& ready, TimePoint deadline) override {
    std::unique_lock lock(mutex_);
    if (ready()) return true;
    Waiter self(ready, waiters_);
    while (true) {
      const TimePoint now = clock_.now();
      if (now >= deadline) return false;
      changed_.wait_for(lock, std::min(deadline - now, kLongestSlice));
      if (self.error) std::rethrow_exception(self.error);
      if (self.satisfied || ready()) return true;
    }
  }

 private:
  /// In the list as long as it lives, or until it has been asked with success.
  struct Waiter {
    Waiter(const std::function<bool()>& for_what, std::vector<Waiter*>& all)
        : ready(for_what), list(all) {
      list.push_back(this);
    }
    ~Waiter() { std::erase(list, this); }
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;

    const std::function<bool()>& ready;
    std::vector<Waiter*>& list;
    bool satisfied = false;
    std::exception_ptr error;  // the exception that `ready` has thrown
  };

  /// The task that changes something evaluates the conditions of the waiting tasks, as in virtual
  /// time: a thread that is woken only to look and sleep again costs two changes of context, at
  /// every frame of an exchange. RETURNS: whether a task is to be woken.
  bool ask_waiters() {
    return std::erase_if(waiters_, [](Waiter* waiter) {
             try {
               waiter->satisfied = waiter->ready();
             } catch (...) {
               waiter->error = std::current_exception();
             }
             return waiter->satisfied || waiter->error;
           }) > 0;
  }

  const Clock& clock_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Waiter*> waiters_;  // on their stacks, in order of arrival
};

class SystemTask final : public Task {
 public:
  SystemTask(std::string name, std::function<void()> body) : name_(std::move(name)) {
    try {
      thread_ = std::thread([this, run = std::move(body)] {
        try {
          run();
        } catch (...) {
          error_ = std::current_exception();
        }
      });
    } catch (const std::system_error& error) {
      throw SystemError(
          fmt::format("no thread for task '{}': {}; raise the limit on processes (ulimit -u) or "
                      "use fewer workers",
                      name_, error.what()));
    }
  }

  ~SystemTask() override {
    if (thread_.joinable()) thread_.join();
    if (error_) {
      fmt::print(stderr, "isthmus: task '{}' failed and nobody joined it\n", name_);
    }
  }

  void join() override {
    if (thread_.joinable()) thread_.join();
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  std::string name_;
  std::exception_ptr error_;  // written by the thread, read after it has been joined
  std::thread thread_;
};

}  // namespace

SystemRuntime::SystemRuntime() = default;

TimePoint SystemRuntime::SteadyClock::now() const {
  return TimePoint(std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now() - start_));
}

void SystemRuntime::sleep_until(TimePoint time) {
  for (TimePoint now = clock_.now(); now < time; now = clock_.now()) {
    std::this_thread::sleep_for(std::min(time - now, kLongestSlice));
  }
}

std::unique_ptr<Task> SystemRuntime::spawn(std::string name, std::function<void()> body) {
  return std::make_unique<SystemTask>(std::move(name), std::move(body));
}

std::unique_ptr<WaitQueue> SystemRuntime::make_wait_queue() {
  return std::make_unique<SystemWaitQueue>(clock_);
}

void SystemRuntime::compute(Duration duration, const std::function<void()>& work) {
  ISTHMUS_CHECK(duration >= Duration::zero(), duration.count());
  work();
}

}  // namespace isthmus
