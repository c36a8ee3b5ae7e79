// SPDX-License-Identifier: Apache-2.0
// The Runtime of the real machine: a monotonic clock that starts at zero with the object, one
// thread a task, condition variables. One of the few files that may use clocks and threads. Any
// thread may call it; it must outlive its tasks and wait queues.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "isthmus/runtime.h"

namespace isthmus {

class SystemRuntime final : public Runtime {
 public:
  SystemRuntime();

  [[nodiscard]] const Clock& clock() const override { return clock_; }
  void sleep_until(TimePoint time) override;
  /// THROWS: SystemError when the machine refuses another thread.
  [[nodiscard]] std::unique_ptr<Task> spawn(std::string name, std::function<void()> body) override;
  [[nodiscard]] std::unique_ptr<WaitQueue> make_wait_queue() override;
  /// Runs `work`; ignores the duration.
  void compute(Duration duration, const std::function<void()>& work) override;
  [[nodiscard]] bool simulated() const override { return false; }

 private:
  class SteadyClock final : public Clock {
   public:
    SteadyClock() : start_(std::chrono::steady_clock::now()) {}
    [[nodiscard]] TimePoint now() const override;

   private:
    std::chrono::steady_clock::time_point start_;
  };

  SteadyClock clock_;
};

}  // namespace isthmus
