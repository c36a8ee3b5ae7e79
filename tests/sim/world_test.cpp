// SPDX-License-Identifier: Apache-2.0
// What is special about virtual time: exact durations, determinism, deadlocks that are reported.
#include "sim/world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "core/base/rng.h"

namespace isthmus::this_file {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

TEST(SimWorld, TimeStartsAtZeroAndPassesOnlyBySleepingAndComputing) {
  SimWorld world(1);
  world.run([&] {
    EXPECT_EQ(world.clock().now(), TimePoint{});
    world.sleep_until(TimePoint(nanoseconds(5)));
    EXPECT_EQ(world.clock().now(), TimePoint(nanoseconds(5)));
    world.compute(seconds(3600), [] {});
    EXPECT_EQ(world.clock().now(), TimePoint(seconds(3600) + nanoseconds(5)));
  });
  EXPECT_TRUE(world.simulated());
}

TEST(SimWorld, DeadlineOfAWaitIsMetToTheNanosecond) {
  SimWorld world(1);
  world.run([&] {
    const auto queue = world.make_wait_queue();
    EXPECT_FALSE(queue->wait([] { return false; }, TimePoint(nanoseconds(123456789))));
    EXPECT_EQ(world.clock().now(), TimePoint(nanoseconds(123456789)));
  });
}

TEST(SimWorld, ASatisfiedWaitLeavesNoTimerBehind) {
  // The timer of the first wait would otherwise carry the clock to one hour.
  SimWorld world(1);
  world.run([&] {
    const auto queue = world.make_wait_queue();
    bool open = false;
    const auto opener = world.spawn("opener", [&] {
      world.sleep_until(TimePoint(milliseconds(1)));
      queue->update([&] { open = true; });
    });
    EXPECT_TRUE(queue->wait([&] { return open; }, TimePoint(std::chrono::hours(1))));
    EXPECT_EQ(world.clock().now(), TimePoint(milliseconds(1)));
  });
}

TEST(SimWorld, ComputeRegionsOverlapInVirtualTime) {
  SimWorld world(1);
  world.run([&] {
    std::vector<std::unique_ptr<Task>> workers;
    workers.reserve(8);
    for (int i = 1; i <= 8; ++i) {
      workers.push_back(world.spawn("worker", [&, i] {
        world.compute(seconds(i), [] {});
        EXPECT_EQ(world.clock().now(), TimePoint(seconds(i)));
      }));
    }
    for (auto& worker : workers) worker->join();
    EXPECT_EQ(world.clock().now(), TimePoint(seconds(8)));
  });
}

TEST(SimWorld, WorkOfRegionsReallyRunsAtTheSameTime) {
  // Each region's work needs the other one to have begun: one after the other they would never end.
  SimWorld world(1, {.slots = 2});
  world.run([&] {
    std::atomic<int> begun = 0;
    std::vector<std::unique_ptr<Task>> workers;
    workers.reserve(2);
    for (int i = 0; i < 2; ++i) {
      workers.push_back(world.spawn("worker", [&] {
        world.compute(milliseconds(10), [&] {
          ++begun;
          while (begun < 2) std::this_thread::yield();
        });
      }));
    }
    for (auto& worker : workers) worker->join();
  });
}

TEST(SimWorld, NoMoreRegionsThanSlotsWorkAtOnce) {
  constexpr int kSlots = 2;
  SimWorld world(1, {.slots = kSlots});
  std::atomic<int> working = 0;
  std::atomic<int> most = 0;
  world.run([&] {
    std::vector<std::unique_ptr<Task>> workers;
    workers.reserve(12);
    for (int i = 0; i < 12; ++i) {
      workers.push_back(world.spawn("worker", [&] {
        for (int k = 0; k < 5; ++k) {
          world.compute(milliseconds(1), [&] {
            const int now = ++working;
            int seen = most;
            while (now > seen && !most.compare_exchange_weak(seen, now)) {
            }
            std::this_thread::yield();
            --working;
          });
        }
      }));
    }
    for (auto& worker : workers) worker->join();
  });
  EXPECT_LE(most, kSlots);
  EXPECT_GE(most, 1);
}

TEST(SimWorld, OthersAdvanceUpToTheEndOfARegionAndNeverPastIt) {
  SimWorld world(1);
  world.run([&] {
    std::vector<int> order;
    const auto ticker = world.spawn("ticker", [&] {
      for (int ms = 1; ms <= 20; ++ms) {
        world.sleep_until(TimePoint(milliseconds(ms)));
        order.push_back(ms);
      }
    });
    const auto worker = world.spawn("worker", [&] {
      // Real work that outlasts everything the ticker could do in real time.
      std::atomic<long> sum = 0;
      world.compute(milliseconds(10) + nanoseconds(1), [&] {
        for (int i = 0; i < 3'000'000; ++i) sum += i;
      });
      order.push_back(-1);
    });
    ticker->join();
    worker->join();
    const auto region_end = std::find(order.begin(), order.end(), -1) - order.begin();
    EXPECT_EQ(region_end, 10) << "the region must end between ticks 10 and 11";
  });
}

/// Tasks that sleep for seeded times and pass a token on; the trace depends on the seed.
std::uint64_t trace_of(std::uint64_t seed, const SimWorldOptions& options = {}) {
  SimWorld world(seed, options);
  const Rng rng(seed, Stream::kTestData);
  world.run([&] {
    const auto queue = world.make_wait_queue();
    int turn = 0;
    std::vector<std::unique_ptr<Task>> tasks;
    tasks.reserve(6);
    for (int i = 0; i < 6; ++i) {
      tasks.push_back(world.spawn("task", [&, i] {
        for (int k = 0; k < 10; ++k) {
          const auto index = static_cast<std::uint64_t>(i) * 10 + static_cast<std::uint64_t>(k);
          world.compute(nanoseconds(rng.below(1000, index)), [] {});
          queue->update([&] { ++turn; });
          queue->wait([&] { return turn > k; }, world.clock().now() + nanoseconds(500));
        }
      }));
    }
    for (auto& task : tasks) task->join();
  });
  return world.trace_hash();
}

TEST(SimWorld, SameSeedGivesTheSameTraceAndAnotherSeedAnotherOne) {
  const std::uint64_t trace = trace_of(1);
  for (int repeat = 0; repeat < 20; ++repeat) EXPECT_EQ(trace_of(1), trace);
  EXPECT_NE(trace_of(2), trace);
}

TEST(SimWorld, TraceDoesNotDependOnTheNumberOfSlots) {
  EXPECT_EQ(trace_of(3, {.slots = 1}), trace_of(3, {.slots = 16}));
}

TEST(SimWorld, ShuffledOrderIsAFunctionOfTheSeed) {
  const SimWorldOptions shuffled{.shuffle = true};
  EXPECT_EQ(trace_of(4, shuffled), trace_of(4, shuffled));
  EXPECT_NE(trace_of(4, shuffled), trace_of(4));
}

TEST(SimWorld, DeadlockNamesEveryTaskAndWhatItWaitsFor) {
  SimWorld world(1);
  try {
    world.run([&] {
      const auto queue = world.make_wait_queue();
      world.name_queue(*queue, "inbox of rank 0");
      const auto waits =
          world.spawn("worker-0", [&] { (void)queue->wait([] { return false; }, kNever); });
      const auto sleeps = world.spawn("worker-1", [&] { world.sleep_until(kNever); });
      world.sleep_until(TimePoint(seconds(2)));
      waits->join();
    });
    FAIL() << "no deadlock reported";
  } catch (const DeadlockError& error) {
    EXPECT_STREQ(error.what(),
                 "deadlock: nobody can run and no event is due, at virtual time 2 s: main joins "
                 "worker-0; worker-0 waits for ever in inbox of rank 0; worker-1 sleeps for ever;");
  }
}

TEST(SimWorld, StacksUnwindAfterADeadlock) {
  SimWorld world(1);
  bool unwound = false;
  struct Mark {
    SimWorld& world;
    WaitQueue& queue;
    bool& flag;
    ~Mark() {
      // Clean-up code may update, wait and sleep: nothing blocks any more.
      queue.update([this] { flag = true; });
      EXPECT_FALSE(queue.wait([] { return false; }, kNever));
      world.sleep_until(kNever);
    }
  };
  EXPECT_THROW(world.run([&] {
    const auto queue = world.make_wait_queue();
    const auto task = world.spawn("worker-0", [&] {
      const Mark mark{world, *queue, unwound};
      queue->wait([] { return false; }, kNever);
    });
  }),
               DeadlockError);
  EXPECT_TRUE(unwound);
}

TEST(SimWorld, AFailureThatLeftTheOthersWaitingIsReportedInPlaceOfTheDeadlock) {
  SimWorld world(1);
  try {
    world.run([&] {
      const auto queue = world.make_wait_queue();
      const auto waits =
          world.spawn("worker-0", [&] { (void)queue->wait([] { return false; }, kNever); });
      const auto fails = world.spawn("worker-1", [] { throw std::runtime_error("disk is full"); });
      waits->join();
    });
    FAIL() << "nothing thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "disk is full");
  }
}

TEST(SimWorld, RunThrowsWhatATaskThrewThatNobodyJoined) {
  SimWorld world(1);
  EXPECT_THROW(world.run([&] {
    const auto task = world.spawn("fails", [] { throw std::out_of_range("no such tensor"); });
  }),
               std::out_of_range);
}

TEST(SimWorld, RunThrowsWhatItsBodyThrewAfterTheOthersAreDone) {
  SimWorld world(1);
  bool done = false;
  std::unique_ptr<Task> task;
  EXPECT_THROW(world.run([&] {
    task = world.spawn("slow", [&] {
      world.sleep_until(TimePoint(seconds(1)));
      done = true;
    });
    throw std::invalid_argument("bad body");
  }),
               std::invalid_argument);
  EXPECT_TRUE(done);
}

TEST(SimWorld, StandingTimeIsReportedAsALivelock) {
  SimWorld world(1, {.max_switches_per_instant = 1000});
  try {
    world.run([&] {
      while (true) world.sleep_until(world.clock().now());
    });
    FAIL() << "no livelock reported";
  } catch (const DeadlockError& error) {
    EXPECT_THAT(error.what(), HasSubstr("livelock: 1000 switches"));
  }
}

TEST(SimWorld, SeamCallsInsideAComputeRegionAreRefused) {
  SimWorld world(1);
  world.run([&] {
    const auto queue = world.make_wait_queue();
    EXPECT_THROW(world.compute(seconds(1), [&] { (void)world.clock().now(); }), std::logic_error);
    EXPECT_THROW(world.compute(seconds(1), [&] { world.sleep_until(kNever); }), std::logic_error);
    EXPECT_THROW(world.compute(seconds(1), [&] { queue->update([] {}); }), std::logic_error);
    EXPECT_EQ(world.clock().now(), TimePoint(seconds(3)));
  });
}

TEST(SimWorld, BlockingCallsFromAForeignThreadAreRefused) {
  SimWorld world(1);
  EXPECT_THROW(world.sleep_until(TimePoint(seconds(1))), std::logic_error);
  world.run([] {});
}

TEST(SimWorld, TasksSpawnedBeforeTheRunRunInItOrEndWithTheWorld) {
  bool ran = false;
  {
    SimWorld world(1);
    const auto task = world.spawn("early", [&] { ran = true; });
    world.run([] {});
  }
  EXPECT_TRUE(ran);
}

TEST(SimWorld, StoppingAGroupEndsItsTasksAndWhatTheySpawnedOnly) {
  struct Crash {};
  SimWorld world(1);
  int crashed = 0;
  bool survived = false;
  world.run([&] {
    world.at(TimePoint(seconds(1)), 1,
             [&] { world.stop_group(3, std::make_exception_ptr(Crash{})); });
    const auto victim = world.spawn_in_group(3, "victim", [&] {
      const auto child = world.spawn("child", [&] {
        try {
          world.compute(seconds(5), [] {});
        } catch (const Crash&) {
          ++crashed;
          throw;
        }
      });
      try {
        world.sleep_until(TimePoint(seconds(9)));
      } catch (const Crash&) {
        EXPECT_EQ(world.clock().now(), TimePoint(seconds(1)));
        ++crashed;
      }
    });
    const auto survivor = world.spawn_in_group(2, "survivor", [&] {
      world.sleep_until(TimePoint(seconds(9)));
      survived = true;
    });
  });
  EXPECT_EQ(crashed, 2);
  EXPECT_TRUE(survived);
}

TEST(SimWorld, WhatAnActionThrowsEndsTheRun) {
  SimWorld world(1);
  try {
    world.run([&] {
      world.at(TimePoint(seconds(1)), 1,
               [] { throw std::runtime_error("event log: disk is full"); });
      const auto queue = world.make_wait_queue();
      const auto task =
          world.spawn("worker-0", [&] { (void)queue->wait([] { return false; }, kNever); });
      world.sleep_until(TimePoint(seconds(9)));
      ADD_FAILURE() << "the run went on";
    });
    FAIL() << "nothing thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "event log: disk is full");
    EXPECT_EQ(world.clock().now(), TimePoint(seconds(1)));
  }
}

TEST(SimWorld, ActionsRunAtTheirTimesInTheOrderTheyWereGiven) {
  SimWorld world(1);
  std::vector<std::string> order;
  world.run([&] {
    const auto note = [&](const char* name) {
      return [&order, &world, name] {
        order.push_back(std::to_string(world.clock().now().time_since_epoch().count()) + name);
      };
    };
    world.at(TimePoint(nanoseconds(7)), 1, note("c"));
    world.at(TimePoint(nanoseconds(3)), 1, note("a"));
    world.at(TimePoint(nanoseconds(7)), 1, note("d"));
    world.at(TimePoint(nanoseconds(5)), 1, note("b"));
    world.sleep_until(TimePoint(nanoseconds(10)));
  });
  EXPECT_EQ(order, (std::vector<std::string>{"3a", "5b", "7c", "7d"}));
}

}  // namespace
}  // namespace isthmus::this_file
