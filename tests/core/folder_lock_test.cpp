// SPDX-License-Identifier: Apache-2.0
// One process a folder: who is refused, who takes over, and when. Other machines are played in
// virtual time, by holders that do not see the kernel's locks.
#include "core/base/folder_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <utility>

#include "core/base/storage.h"
#include "core/base/system_runtime.h"
#include "core/temporary_directory.h"
#include "isthmus/errors.h"
#include "sim/world.h"

namespace isthmus::this_file {
namespace {

using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kFile = "run.lock";

ProcessIdentity machine(const std::string& name) {
  return {.pid = 4711, .host = name, .boot = "boot of " + name, .pid_space = "1", .begun = "99"};
}

std::string record_of(const ProcessIdentity& process, const std::string& id = "someone") {
  return R"({"pid":)" + std::to_string(process.pid) + R"(,"host":")" + process.host +
         R"(","since":"2026-11-27 14:05:11 UTC","boot":")" + process.boot + R"(","pid_space":")" +
         process.pid_space + R"(","begun":")" + process.begun + R"(","id":")" + id +
         "\",\"beat\":\"000000000007\"}\n";
}

/// A machine that may be held up for 0.8 s whenever it looks at its clock: so what it reads may be
/// old when it writes, as with a file server far away. Less than FolderLock::kSettle.
class SlowMachine final : public Runtime, public Clock {
 public:
  SlowMachine(SimWorld& world, std::uint64_t draw) : world_(world), draw_(draw) {}
  [[nodiscard]] TimePoint now() const override {
    draw_ = draw_ * 6364136223846793005U + 1442695040888963407U;
    const auto held_up = std::chrono::milliseconds((draw_ >> 33) % 800);
    if ((draw_ >> 20) % 4 == 0) world_.sleep_until(world_.clock().now() + held_up);
    return world_.clock().now();
  }
  [[nodiscard]] const Clock& clock() const override { return *this; }
  void sleep_until(TimePoint time) override { world_.sleep_until(time); }
  [[nodiscard]] std::unique_ptr<Task> spawn(std::string name, std::function<void()> body) override {
    return world_.spawn(std::move(name), std::move(body));
  }
  [[nodiscard]] std::unique_ptr<WaitQueue> make_wait_queue() override {
    return world_.make_wait_queue();
  }
  void compute(Duration duration, const std::function<void()>& work) override {
    world_.compute(duration, work);
  }
  [[nodiscard]] bool simulated() const override { return true; }

 private:
  SimWorld& world_;
  mutable std::uint64_t draw_;
};

/// A machine whose first look at the file takes long: the file server hangs.
class HangingServer final : public Runtime {
 public:
  HangingServer(SimWorld& world, Duration hang) : world_(world), hang_(hang) {}
  [[nodiscard]] const Clock& clock() const override { return world_.clock(); }
  void sleep_until(TimePoint time) override {
    world_.sleep_until(time + std::exchange(hang_, Duration{0}));
  }
  [[nodiscard]] std::unique_ptr<Task> spawn(std::string name, std::function<void()> body) override {
    return world_.spawn(std::move(name), std::move(body));
  }
  [[nodiscard]] std::unique_ptr<WaitQueue> make_wait_queue() override {
    return world_.make_wait_queue();
  }
  void compute(Duration duration, const std::function<void()>& work) override {
    world_.compute(duration, work);
  }
  [[nodiscard]] bool simulated() const override { return true; }

 private:
  SimWorld& world_;
  Duration hang_;
};

/// A machine that is held up once, for 0.6 s, when it has seen nothing for its patience.
class LateMachine final : public Runtime, public Clock {
 public:
  explicit LateMachine(SimWorld& world) : world_(world) {}
  [[nodiscard]] TimePoint now() const override {
    const TimePoint now = world_.clock().now();
    if (now < TimePoint(FolderLock::kPatience) || std::exchange(late_, true)) return now;
    world_.sleep_until(now + std::chrono::milliseconds(600));
    return world_.clock().now();
  }
  [[nodiscard]] const Clock& clock() const override { return *this; }
  void sleep_until(TimePoint time) override { world_.sleep_until(time); }
  [[nodiscard]] std::unique_ptr<Task> spawn(std::string name, std::function<void()> body) override {
    return world_.spawn(std::move(name), std::move(body));
  }
  [[nodiscard]] std::unique_ptr<WaitQueue> make_wait_queue() override {
    return world_.make_wait_queue();
  }
  void compute(Duration duration, const std::function<void()>& work) override {
    world_.compute(duration, work);
  }
  [[nodiscard]] bool simulated() const override { return true; }

 private:
  SimWorld& world_;
  mutable bool late_ = false;
};

/// A process whose tasks are frozen, all but the one that asks.
class StillTasks final : public Runtime {
 public:
  explicit StillTasks(SimWorld& world) : world_(world) {}
  [[nodiscard]] const Clock& clock() const override { return world_.clock(); }
  void sleep_until(TimePoint time) override { world_.sleep_until(time); }
  [[nodiscard]] std::unique_ptr<Task> spawn(std::string name, std::function<void()>) override {
    return world_.spawn(std::move(name), [] {});
  }
  [[nodiscard]] std::unique_ptr<WaitQueue> make_wait_queue() override {
    return world_.make_wait_queue();
  }
  void compute(Duration duration, const std::function<void()>& work) override {
    world_.compute(duration, work);
  }
  [[nodiscard]] bool simulated() const override { return true; }

 private:
  SimWorld& world_;
};

class FolderLockTest : public testing::Test {
 protected:
  /// Of this process.
  FolderLock::Options here(const std::string& folder = "run") {
    return {.folder = directory_ / folder,
            .file = kFile,
            .since = "2026-11-27 14:05:11 UTC",
            .remedy = "give another --out"};
  }
  /// Of another machine, whose kernel does not see this one's locks.
  FolderLock::Options elsewhere(const std::string& host) {
    FolderLock::Options options = here();
    options.self = machine(host);
    options.kernel_locks = false;
    options.tell = [this](const std::string& what) { told_ += what + "\n"; };
    return options;
  }
  void leave_record(const std::string& text) {
    std::filesystem::create_directories(directory_ / "run");
    std::ofstream(directory_ / "run" / kFile) << text;
  }
  std::string refusal(Runtime& runtime, const FolderLock::Options& options) {
    return message_of<SystemError>([&] { const FolderLock lock(runtime, options); });
  }

  TemporaryDirectory directory_;
  SystemRuntime real_;
  std::string told_;
};

TEST_F(FolderLockTest, ASecondHolderIsToldWhoHoldsTheFolderAndWhatToDo) {
  const FolderLock first(real_, here());
  const ProcessIdentity self = this_process();
  EXPECT_THAT(refusal(real_, here()),
              AllOf(HasSubstr((directory_ / "run").string() + "' is in use"),
                    HasSubstr("process " + std::to_string(self.pid) + " on host " + self.host +
                              ", since 2026-11-27 14:05:11 UTC"),
                    HasSubstr("give another --out")));
  EXPECT_NO_THROW(first.check());
}

TEST_F(FolderLockTest, LeavesNothingBehindItself) {
  { const FolderLock lock(real_, here("a/b/run")); }
  EXPECT_FALSE(std::filesystem::exists(directory_ / "a"));
  std::filesystem::create_directories(directory_ / "run");
  { const FolderLock lock(real_, here()); }
  EXPECT_TRUE(std::filesystem::is_empty(directory_ / "run"));
  {
    const FolderLock lock(real_, here("c/run"));
    std::ofstream(directory_ / "c/run/metrics.jsonl") << "{}\n";
  }
  EXPECT_THAT(SystemStorage().list(directory_ / "c/run"), testing::ElementsAre("metrics.jsonl"));
  { const FolderLock lock(real_, here()); }  // and the next may come
}

// A refused holder must not remove what the first has made.
TEST_F(FolderLockTest, ARefusalLeavesTheHoldersFileAlone) {
  const FolderLock first(real_, here());
  EXPECT_NE(refusal(real_, here()), "");
  EXPECT_NE(refusal(real_, here()), "");
}

TEST_F(FolderLockTest, TheLockOfADeadProcessOfThisMachineIsTakenOverAtOnce) {
  ProcessIdentity dead = this_process();
  dead.begun = "1";  // its pid has come again
  leave_record(record_of(dead));
  const TimePoint begin = real_.clock().now();
  { const FolderLock lock(real_, here()); }
  FolderLock::Options without_kernel = here();
  without_kernel.kernel_locks = false;
  leave_record(record_of(dead));
  { const FolderLock lock(real_, without_kernel); }
  EXPECT_LT(real_.clock().now() - begin, FolderLock::kPatience);
  leave_record("");  // it died before it could say who it is
  { const FolderLock lock(real_, here()); }
}

TEST_F(FolderLockTest, WithoutTheKernelsLocksThePidTells) {
  leave_record(record_of(this_process()));
  FolderLock::Options options = here();
  options.kernel_locks = false;
  EXPECT_THAT(refusal(real_, options), HasSubstr("is in use"));
}

TEST_F(FolderLockTest, WhatWasHeldBeforeThisMachinesStartIsTakenOverAtOnce) {
  if (!is_on_local_disk(directory_.path())) GTEST_SKIP() << "the folder may be another machine's";
  ProcessIdentity before = this_process();
  before.boot = "an earlier one";
  leave_record(record_of(before));
  const TimePoint begin = real_.clock().now();
  const FolderLock lock(real_, here());
  EXPECT_LT(real_.clock().now() - begin, FolderLock::kPatience);
}

TEST_F(FolderLockTest, AHolderOnAnotherMachineIsKnownByItsBeat) {
  SimWorld world(1);
  world.run([&] {
    const FolderLock first(world, elsewhere("a"));
    const TimePoint begin = world.clock().now();
    EXPECT_THAT(refusal(world, elsewhere("b")), HasSubstr("process 4711 on host a"));
    EXPECT_LE(world.clock().now() - begin, FolderLock::kBeat + seconds(1));
    world.sleep_until(world.clock().now() + std::chrono::hours(1));
    EXPECT_THAT(refusal(world, elsewhere("b")), HasSubstr("process 4711 on host a"));
    EXPECT_NO_THROW(first.check());
  });
  EXPECT_THAT(told_, HasSubstr("watching for 30 s whether that process lives"));
}

TEST_F(FolderLockTest, ADeadHolderOnAnotherMachineIsTakenOverAfterItsPatience) {
  leave_record(record_of(machine("a")));
  SimWorld world(1);
  world.run([&] {
    const TimePoint begin = world.clock().now();
    const FolderLock lock(world, elsewhere("b"));
    EXPECT_GE(world.clock().now() - begin, FolderLock::kPatience);
    EXPECT_LT(world.clock().now() - begin, FolderLock::kPatience + seconds(3));
    EXPECT_THAT(read_text(SystemStorage(), directory_ / "run" / kFile), HasSubstr("\"b\""));
  });
}

// Each interleaving of several that come at once is drawn from a seed.
TEST_F(FolderLockTest, OfSeveralMachinesOneHoldsTheFolder) {
  for (const bool after_a_death : {false, true}) {
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
      std::filesystem::remove_all(directory_ / "run");
      if (after_a_death) leave_record(record_of(machine("dead")));
      SimWorld world(seed, {.shuffle = true});
      int held = 0;
      world.run([&] {
        std::vector<std::unique_ptr<Task>> tasks;
        for (const char* host : {"a", "b", "c"}) {
          tasks.push_back(world.spawn(host, [&, host] {
            try {
              SlowMachine machine(world, seed * 3 + static_cast<std::uint64_t>(host[0]));
              const FolderLock lock(machine, elsewhere(host));
              ++held;
              world.sleep_until(world.clock().now() + std::chrono::minutes(2));
              lock.check();
            } catch (const SystemError& error) {
              EXPECT_THAT(error.what(), HasSubstr("is in use"));
            }
          }));
        }
        for (const auto& task : tasks) task->join();
      });
      EXPECT_EQ(held, 1) << "seed " << seed;
    }
  }
}

// The dead one's own machine knows at once that it is dead, and holds a lock of its kernel that the
// other does not see: it has to settle as well.
TEST_F(FolderLockTest, TheMachineOfTheDeadAndAnotherDoNotBothHold) {
  leave_record(record_of(machine("dead")));
  SimWorld world(1);
  int held = 0;
  const auto hold = [&](Runtime& runtime, const FolderLock::Options& options) {
    try {
      const FolderLock lock(runtime, options);
      ++held;
      world.sleep_until(world.clock().now() + std::chrono::minutes(2));
      lock.check();
    } catch (const SystemError& error) {
      EXPECT_THAT(error.what(), HasSubstr("is in use"));
    }
  };
  world.run([&] {
    LateMachine late(world);
    const auto other = world.spawn("other", [&] { hold(late, elsewhere("other")); });
    const auto own = world.spawn("own", [&] {
      world.sleep_until(TimePoint(FolderLock::kPatience + std::chrono::milliseconds(300)));
      FolderLock::Options options = elsewhere("dead");
      options.self.pid = 4712;
      options.kernel_locks = true;
      options.may_be_local = false;
      hold(world, options);
    });
    other->join();
    own->join();
  });
  EXPECT_EQ(held, 1);
}

TEST_F(FolderLockTest, AHolderThatWasFrozenLearnsThatAnotherTookOver) {
  SimWorld world(1);
  world.run([&] {
    const FolderLock first(world, elsewhere("a"));
    leave_record(record_of(machine("b"), "the one that took over"));
    world.sleep_until(world.clock().now() + FolderLock::kBeat + seconds(1));
    EXPECT_THAT(message_of<SystemError>([&] { first.check(); }),
                AllOf(HasSubstr("taken over by process 4711 on host b"), HasSubstr("30 s")));
  });
  EXPECT_THAT(read_text(SystemStorage(), directory_ / "run" / kFile), HasSubstr("\"b\""));
}

// It has removed the file that it took over: nothing says any more who it was.
TEST_F(FolderLockTest, AHolderThatWasFrozenLearnsThatItsSuccessorHasEnded) {
  SimWorld world(1);
  world.run([&] {
    const FolderLock first(world, elsewhere("a"));
    std::filesystem::remove(directory_ / "run" / kFile);
    world.sleep_until(world.clock().now() + FolderLock::kBeat + seconds(1));
    EXPECT_THAT(message_of<SystemError>([&] { first.check(); }),
                AllOf(HasSubstr("is not held any more"), HasSubstr("run.lock is gone")));
  });
  EXPECT_FALSE(std::filesystem::exists(directory_ / "run"));
}

// Its beat has not looked yet when it goes on.
TEST_F(FolderLockTest, AHolderThatWasFrozenLooksBeforeItWrites) {
  SimWorld world(1);
  world.run([&] {
    StillTasks frozen(world);
    const FolderLock first(frozen, elsewhere("a"));
    EXPECT_NO_THROW(first.check());
    world.sleep_until(world.clock().now() + FolderLock::kPatience);
    EXPECT_NO_THROW(first.check());
    leave_record(record_of(machine("b"), "the one that took over"));
    EXPECT_THAT(message_of<SystemError>([&] { first.check(); }),
                HasSubstr("taken over by process 4711 on host b"));
  });
}

TEST_F(FolderLockTest, AHangingFileServerMakesNobodyDead) {
  const ProcessIdentity holder = machine("a");
  leave_record(record_of(holder));
  SimWorld world(1);
  world.run([&] {
    // The server answers both again after 34 s: the holder's next beat is 4 s away.
    const auto beat = world.spawn("holder", [&] {
      world.sleep_until(world.clock().now() + seconds(38));
      leave_record(record_of(holder, "its next beat"));
    });
    HangingServer server(world, seconds(34));
    EXPECT_THAT(refusal(server, elsewhere("b")), HasSubstr("process 4711 on host a"));
    beat->join();
  });
}

TEST_F(FolderLockTest, WaitsForAHolderThatIsAboutToEnd) {
  SimWorld world(1);
  world.run([&] {
    auto first = std::make_unique<FolderLock>(world, here());
    const auto task = world.spawn("ends", [&] {
      world.sleep_until(world.clock().now() + seconds(4));
      first.reset();
    });
    FolderLock::Options second = here();
    second.wait = seconds(10);
    const FolderLock lock(world, second);
    EXPECT_GE(world.clock().now().time_since_epoch(), seconds(4));
    task->join();
  });
}

TEST_F(FolderLockTest, WhoWaitsCanBeStopped) {
  SimWorld world(1);
  world.run([&] {
    const FolderLock first(world, here());
    FolderLock::Options second = here();
    second.wait = std::chrono::minutes(10);
    second.stop = [&] {
      if (world.clock().now().time_since_epoch() >= seconds(3)) throw RunError("a signal");
    };
    EXPECT_EQ(message_of<RunError>([&] { const FolderLock lock(world, second); }), "a signal");
    EXPECT_NO_THROW(first.check());
  });
}

// The comparison looks below itself once it holds its folder; so a run in a cell must look above
// itself once it holds the cell, or each could miss the other.
TEST_F(FolderLockTest, AComparisonThatBeginsWhileACellIsTakenIsSeen) {
  SimWorld world(1);
  world.run([&] {
    auto former = std::make_unique<FolderLock>(world, here("run/ddp/seed-1"));
    std::unique_ptr<FolderLock> comparison;
    const auto task = world.spawn("comparison", [&] {
      world.sleep_until(world.clock().now() + seconds(4));
      FolderLock::Options options = here();
      options.cells = true;
      comparison = std::make_unique<FolderLock>(world, options);
      former.reset();
    });
    FolderLock::Options cell = here("run/ddp/seed-1");
    cell.self.pid = this_process().pid + 1;
    cell.wait = seconds(10);
    EXPECT_THAT(refusal(world, cell), HasSubstr("seed-1' lies in"));
    task->join();
  });
}

TEST_F(FolderLockTest, ARunBelowARunIsNotHeldWithIt) {
  const FolderLock run(real_, here());
  FolderLock::Options other = here("run/rehearsal");
  other.self.pid = this_process().pid + 1;
  EXPECT_NO_THROW(const FolderLock lock(real_, other));
}

TEST_F(FolderLockTest, ACellOfAComparisonIsHeldWithIt) {
  FolderLock::Options cells = here();
  cells.cells = true;
  const FolderLock comparison(real_, cells);
  { const FolderLock own_cell(real_, here("run/ddp/seed-1")); }
  FolderLock::Options other = here("run/ddp/seed-1");
  other.self.pid = this_process().pid + 1;
  EXPECT_THAT(refusal(real_, other), AllOf(HasSubstr("seed-1' lies in"), HasSubstr("in use")));
  EXPECT_TRUE(living_owner(directory_ / "run", kFile));
  EXPECT_FALSE(living_owner(directory_ / "run/ddp", kFile));
  EXPECT_FALSE(std::filesystem::exists(directory_ / "run/ddp"));
}

// As a comparison starts the programs of its cells.
TEST_F(FolderLockTest, WhoeverTheHolderHasStartedTakesACell) {
  EXPECT_FALSE(has_started_this_process(this_process()));
  FolderLock::Options cells = here();
  cells.cells = true;
  cells.self.pid = ::getppid();
  cells.self.begun.clear();  // not known
  const FolderLock comparison(real_, cells);
  EXPECT_NO_THROW(const FolderLock cell(real_, here("run/ddp/seed-1")));
}

TEST_F(FolderLockTest, AFolderThatCannotBeWrittenIsNamed) {
  std::ofstream(directory_ / "run") << "a file";
  EXPECT_THAT(refusal(real_, here()), HasSubstr((directory_ / "run").string()));
}

}  // namespace
}  // namespace isthmus::this_file
