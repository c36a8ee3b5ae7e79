// SPDX-License-Identifier: Apache-2.0
// What every runtime does, real or virtual: the same bodies, once a world.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "conformance_worlds.h"

namespace isthmus::testing_support::this_file {
namespace {

using std::chrono::milliseconds;

class RuntimeConformance : public ::testing::TestWithParam<WorldKind> {
 protected:
  void run(const std::function<void(Runtime&)>& body) {
    world_->run([&] { body(world_->runtime()); });
  }
  [[nodiscard]] Runtime& runtime() { return world_->runtime(); }

 private:
  std::unique_ptr<World> world_ = GetParam().make();
};

TEST_P(RuntimeConformance, JoinReturnsAfterTheTask) {
  run([](Runtime& runtime) {
    int value = 0;
    const auto task = runtime.spawn("writer", [&] {
      runtime.sleep_until(runtime.clock().now() + milliseconds(2));
      value = 7;
    });
    task->join();
    EXPECT_EQ(value, 7);
    task->join();  // A second join has nothing to wait for.
  });
}

TEST_P(RuntimeConformance, DestructorOfATaskJoins) {
  run([](Runtime& runtime) {
    int value = 0;
    {
      const auto task = runtime.spawn("writer", [&] {
        runtime.sleep_until(runtime.clock().now() + milliseconds(2));
        value = 7;
      });
    }
    EXPECT_EQ(value, 7);
  });
}

TEST_P(RuntimeConformance, JoinThrowsWhatTheTaskThrewOnce) {
  run([](Runtime& runtime) {
    const auto task =
        runtime.spawn("fails", [] { throw std::runtime_error("shard 3 is unreadable"); });
    try {
      task->join();
      FAIL() << "join did not throw";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "shard 3 is unreadable");
    }
    EXPECT_NO_THROW(task->join());
  });
}

TEST_P(RuntimeConformance, SpawnedTasksMaySpawn) {
  run([](Runtime& runtime) {
    int depth = 0;
    std::function<void(int)> descend = [&](int left) {
      ++depth;
      if (left > 0) runtime.spawn("deeper", [&descend, left] { descend(left - 1); })->join();
    };
    descend(5);
    EXPECT_EQ(depth, 6);
  });
}

TEST_P(RuntimeConformance, WaitSeesAnUpdateOfAnotherTask) {
  run([](Runtime& runtime) {
    const auto queue = runtime.make_wait_queue();
    int value = 0;
    const auto task = runtime.spawn("writer", [&] {
      runtime.sleep_until(runtime.clock().now() + milliseconds(1));
      queue->update([&] { value = 1; });
    });
    EXPECT_TRUE(queue->wait([&] { return value == 1; }, kNever));
  });
}

TEST_P(RuntimeConformance, WaitReturnsAtOnceWhenReadyEvenPastTheDeadline) {
  run([](Runtime& runtime) {
    const auto queue = runtime.make_wait_queue();
    EXPECT_TRUE(queue->wait([] { return true; }, TimePoint{}));
    EXPECT_TRUE(queue->wait([] { return true; }, TimePoint::min()));
  });
}

TEST_P(RuntimeConformance, WaitReturnsFalseAtTheDeadline) {
  run([](Runtime& runtime) {
    const auto queue = runtime.make_wait_queue();
    const TimePoint deadline = runtime.clock().now() + milliseconds(3);
    EXPECT_FALSE(queue->wait([] { return false; }, deadline));
    EXPECT_GE(runtime.clock().now(), deadline);
    EXPECT_FALSE(queue->wait([] { return false; }, deadline));
  });
}

TEST_P(RuntimeConformance, UpdateWakesEveryWaiterWhoseConditionHolds) {
  run([](Runtime& runtime) {
    const auto queue = runtime.make_wait_queue();
    bool open = false;
    int passed = 0;
    std::vector<std::unique_ptr<Task>> tasks;
    tasks.reserve(10);
    for (int i = 0; i < 10; ++i) {
      tasks.push_back(runtime.spawn("waiter", [&] {
        EXPECT_TRUE(queue->wait([&] { return open; }, kNever));
        queue->update([&] { ++passed; });
      }));
    }
    queue->update([&] { open = true; });
    for (auto& task : tasks) task->join();
    EXPECT_EQ(passed, 10);
  });
}

TEST_P(RuntimeConformance, ATrueConditionIsEvaluatedOnceSoThatItMayTake) {
  run([](Runtime& runtime) {
    constexpr int kItems = 200;
    const auto queue = runtime.make_wait_queue();
    int available = 0;
    int taken = 0;
    std::vector<std::unique_ptr<Task>> tasks;
    tasks.reserve(4);
    for (int i = 0; i < 4; ++i) {
      tasks.push_back(runtime.spawn("taker", [&] {
        for (int k = 0; k < kItems / 4; ++k) {
          EXPECT_TRUE(queue->wait(
              [&] {
                if (available == 0) return false;
                --available;
                ++taken;
                return true;
              },
              kNever));
        }
      }));
    }
    for (int i = 0; i < kItems; ++i) queue->update([&] { ++available; });
    for (auto& task : tasks) task->join();
    EXPECT_EQ(taken, kItems);
    EXPECT_EQ(available, 0);
  });
}

TEST_P(RuntimeConformance, SleepersWakeInTheOrderOfTheirTimes) {
  run([](Runtime& runtime) {
    const auto queue = runtime.make_wait_queue();
    std::vector<int> woken;
    const TimePoint start = runtime.clock().now() + milliseconds(20);
    std::vector<std::unique_ptr<Task>> tasks;
    for (const int place : {2, 0, 1}) {
      tasks.push_back(runtime.spawn("sleeper", [&, place] {
        runtime.sleep_until(start + milliseconds(40) * place);
        queue->update([&] { woken.push_back(place); });
      }));
    }
    for (auto& task : tasks) task->join();
    EXPECT_EQ(woken, (std::vector<int>{0, 1, 2}));
  });
}

TEST_P(RuntimeConformance, ComputeRunsTheWorkOnceAndPassesItsExceptionOn) {
  run([](Runtime& runtime) {
    int ran = 0;
    runtime.compute(milliseconds(1), [&] { ++ran; });
    EXPECT_EQ(ran, 1);
    EXPECT_THROW(runtime.compute(milliseconds(1), [] { throw std::runtime_error("loss is NaN"); }),
                 std::runtime_error);
    runtime.compute(Duration::zero(), [&] { ++ran; });
    EXPECT_EQ(ran, 2);
  });
}

TEST_P(RuntimeConformance, ExceptionOfTheConditionReachesTheWaiter) {
  run([](Runtime& runtime) {
    const auto queue = runtime.make_wait_queue();
    EXPECT_THROW(queue->wait([]() -> bool { throw std::runtime_error("bad state"); }, kNever),
                 std::runtime_error);
    bool usable = false;
    queue->update([&] { usable = true; });
    EXPECT_TRUE(queue->wait([&] { return usable; }, kNever));
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, RuntimeConformance, ::testing::ValuesIn(all_worlds()),
                         [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace isthmus::testing_support::this_file
