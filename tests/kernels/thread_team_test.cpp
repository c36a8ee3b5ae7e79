// SPDX-License-Identifier: Apache-2.0
#include "kernels/thread_team.h"

#include <gmock/gmock.h>

#include <atomic>
#include <barrier>
#include <new>
#include <thread>

#include "isthmus/errors.h"
#include "kernels/kernel_test.h"
#include "kernels/thread_pinning.h"

namespace isthmus::kernels::this_file {
namespace {

TEST(ThreadTeam, RunsEveryIndexOnce) {
  for (const int size : kTeamSizes) {
    ThreadTeam team(size);
    for (const std::int64_t count : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<std::size_t>(count));
      team.for_each(count, [&](std::int64_t index, int member) {
        EXPECT_GE(member, 0);
        EXPECT_LT(member, size);
        ++runs[static_cast<std::size_t>(index)];
      });
      for (const std::atomic<int>& n : runs) ASSERT_EQ(n, 1) << size << " " << count;
    }
  }
}

TEST(ThreadTeam, BlocksCoverTheRangeWithoutOverlap) {
  ThreadTeam team(3);
  std::vector<std::atomic<int>> runs(103);
  team.for_blocks(103, 10, [&](std::int64_t begin, std::int64_t end) {
    EXPECT_EQ(begin % 10, 0);
    for (std::int64_t i = begin; i < end; ++i) ++runs[static_cast<std::size_t>(i)];
  });
  for (const std::atomic<int>& n : runs) ASSERT_EQ(n, 1);
}

TEST(ThreadTeam, WhatALoopWroteIsThereAfterIt) {
  ThreadTeam team(5);
  std::vector<std::int64_t> values(64);
  for (std::int64_t round = 0; round < 2000; ++round) {
    team.for_each(64, [&](std::int64_t index, int) {
      values[static_cast<std::size_t>(index)] = round + index;
    });
    for (std::int64_t i = 0; i < 64; ++i) ASSERT_EQ(values[static_cast<std::size_t>(i)], round + i);
  }
}

TEST(ThreadTeam, ManyTeamsLiveSideBySide) {
  std::vector<std::unique_ptr<ThreadTeam>> teams;
  for (int i = 0; i < 8; ++i) teams.push_back(std::make_unique<ThreadTeam>(1 + i % 3));
  std::atomic<int> runs = 0;
  for (const auto& team : teams) team->for_each(10, [&](std::int64_t, int) { ++runs; });
  EXPECT_EQ(runs, 80);
}

TEST(ThreadTeam, PinnedMembersRunOnTheirCoreAndTheCallerIsFreedAfterwards) {
  const std::vector<int> before = usable_cores();
  ASSERT_FALSE(before.empty());
  const int size = static_cast<int>(std::min<std::size_t>(before.size(), 3));
  const std::vector<int> cores(before.begin(), before.begin() + size);
  {
    ThreadTeam team(size, cores);
    std::vector<std::vector<int>> seen(static_cast<std::size_t>(size));
    // The barrier makes every member take one index.
    std::barrier all(size);
    team.for_each(size, [&](std::int64_t, int member) {
      all.arrive_and_wait();
      seen[static_cast<std::size_t>(member)] = usable_cores();
    });
    for (int i = 0; i < size; ++i) {
      EXPECT_EQ(seen[static_cast<std::size_t>(i)],
                std::vector<int>{cores[static_cast<std::size_t>(i)]});
    }
    // A second team of the pinned caller is not squeezed onto its core.
    ThreadTeam floating(size);
    floating.for_each(size, [&](std::int64_t, int member) {
      all.arrive_and_wait();
      seen[static_cast<std::size_t>(member)] = usable_cores();
    });
    for (int i = 1; i < size; ++i) EXPECT_EQ(seen[static_cast<std::size_t>(i)], before);
  }
  EXPECT_EQ(usable_cores(), before);
}

TEST(ThreadTeam, ACallerWhoLetsAnotherThreadDriveItIsFreedBefore) {
  const std::vector<int> before = usable_cores();
  ASSERT_FALSE(before.empty());
  {
    ThreadTeam team(1, std::vector<int>{before.front()});
    EXPECT_EQ(usable_cores(), std::vector<int>{before.front()});
    unpin_calling_thread();
    EXPECT_EQ(usable_cores(), before);
  }
  EXPECT_EQ(usable_cores(), before);
  unpin_calling_thread();  // nobody has pinned it
  EXPECT_EQ(usable_cores(), before);
}

TEST(ThreadTeam, ACoreThatIsNotThereIsRefusedByNumber) {
  const std::vector<int> before = usable_cores();
  const std::vector<int> cores = {1023};
  try {
    ThreadTeam team(1, cores);
    FAIL() << "pinned to core 1023";
  } catch (const SystemError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("core 1023"));
  }
  EXPECT_EQ(usable_cores(), before);
}

TEST(ThreadTeam, ScratchKeepsItsPlaceAndIsAligned) {
  ThreadTeam team(2);
  float* small = team.scratch<float>(Scratch::kOperation, 10);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(small) % 64, 0u);
  EXPECT_EQ(team.scratch<float>(Scratch::kOperation, 5), small);
  EXPECT_NE(team.scratch<float>(Scratch::kPartial, 5), small);
  EXPECT_NE(team.scratch<float>(Scratch::kOperation, 5, 1), small);
}

TEST(ThreadTeam, WhatABodyThrowsReachesTheCaller) {
  ThreadTeam team(4);
  for (int round = 0; round < 50; ++round) {
    // Only helpers throw: the driver waits in its index until one of them has come in.
    std::atomic<bool> thrown = false;
    EXPECT_THROW(team.for_each(4,
                               [&](std::int64_t, int member) {
                                 if (member == 0) {
                                   while (!thrown) std::this_thread::yield();
                                   return;
                                 }
                                 thrown = true;
                                 throw std::bad_alloc();
                               }),
                 std::bad_alloc);
    std::atomic<int> runs = 0;
    team.for_each(100, [&](std::int64_t, int) { ++runs; });
    ASSERT_EQ(runs, 100);
  }
}

TEST(ThreadTeamDeathTest, LoopsDoNotNest) {
  ThreadTeam team(2);
  EXPECT_DEATH(
      team.for_each(2, [&](std::int64_t, int) { team.for_each(2, [](std::int64_t, int) {}); }),
      "running_");
}

}  // namespace
}  // namespace isthmus::kernels::this_file
