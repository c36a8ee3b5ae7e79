// SPDX-License-Identifier: Apache-2.0
// What only the real machine's runtime has: real time, and threads that really run at once. What
// every runtime must do is in tests/transport/conformance_test.cpp.
#include "core/base/system_runtime.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

namespace isthmus::this_file {
namespace {

using std::chrono::milliseconds;

TEST(SystemRuntime, ClockStartsNearZeroAndNeverGoesBack) {
  const SystemRuntime runtime;
  TimePoint before = runtime.clock().now();
  EXPECT_GE(before, TimePoint{});
  EXPECT_LT(before, TimePoint(std::chrono::minutes(1)));
  for (int i = 0; i < 1000; ++i) {
    const TimePoint now = runtime.clock().now();
    EXPECT_GE(now, before);
    before = now;
  }
}

TEST(SystemRuntime, SleepsAtLeastUntilTheTime) {
  SystemRuntime runtime;
  const TimePoint until = runtime.clock().now() + milliseconds(5);
  runtime.sleep_until(until);
  EXPECT_GE(runtime.clock().now(), until);
}

TEST(SystemRuntime, WaitGivesUpAtTheDeadlineAndNotBefore) {
  SystemRuntime runtime;
  const auto queue = runtime.make_wait_queue();
  const TimePoint deadline = runtime.clock().now() + milliseconds(5);
  EXPECT_FALSE(queue->wait([] { return false; }, deadline));
  EXPECT_GE(runtime.clock().now(), deadline);
}

TEST(SystemRuntime, ComputeRunsTheWorkAndIgnoresItsDuration) {
  SystemRuntime runtime;
  bool ran = false;
  runtime.compute(std::chrono::hours(24), [&] { ran = true; });
  EXPECT_TRUE(ran);
  EXPECT_FALSE(runtime.simulated());
}

TEST(SystemRuntime, TasksRunAtTheSameTime) {
  // Each task needs the other one to have started: one after the other they would never end.
  SystemRuntime runtime;
  std::atomic<int> started = 0;
  std::vector<std::unique_ptr<Task>> tasks;
  tasks.reserve(2);
  for (int i = 0; i < 2; ++i) {
    tasks.push_back(runtime.spawn("meets", [&] {
      ++started;
      while (started < 2) runtime.sleep_until(runtime.clock().now() + milliseconds(1));
    }));
  }
  for (auto& task : tasks) task->join();
  EXPECT_EQ(started, 2);
}

TEST(SystemRuntime, WhoWaitsIsWokenOnlyForWhatItWaitsFor) {
  SystemRuntime runtime;
  const auto queue = runtime.make_wait_queue();
  int state = 0;  // below, too: under the queue's lock
  int looks = 0;
  bool waits = false;
  const auto task = runtime.spawn("waiter", [&] {
    const std::thread::id self = std::this_thread::get_id();
    EXPECT_TRUE(queue->wait(
        [&] {
          looks += std::this_thread::get_id() == self ? 1 : 0;
          waits = true;
          return state == 1000;
        },
        kNever));
  });
  for (bool seen = false; !seen;) {
    queue->update([&] { seen = waits; });
  }
  for (int i = 0; i < 1000; ++i) {
    queue->update([&] { ++state; });
    std::this_thread::yield();  // one that is woken each time looks before the next
  }
  task->join();
  EXPECT_LE(looks, 20) << "1, but for what the system wakes without a reason";
}

}  // namespace
}  // namespace isthmus::this_file
