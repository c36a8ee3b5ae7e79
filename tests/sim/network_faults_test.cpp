// SPDX-License-Identifier: Apache-2.0
// Each class of fault on simulated links, and processes that follow one another in a member's
// place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "isthmus/errors.h"
#include "network_fixture.h"

namespace isthmus::this_file {
namespace {

using namespace testing_support;
using std::chrono::nanoseconds;

constexpr int kBurst = 2000;

/// Six standard deviations of a count of kBurst trials.
double six_sigma(double probability) {
  return 6 * std::sqrt(kBurst * probability * (1 - probability));
}

TEST(Faults, DropLosesFramesAtItsRateAndKeepsTheOrderOfTheRest) {
  FaultCounts counts;
  const auto seen = send_burst(kBurst, {.drop = 0.1}, &counts);
  EXPECT_NEAR(static_cast<double>(counts.dropped), 0.1 * kBurst, six_sigma(0.1));
  EXPECT_EQ(seen.size(), kBurst - counts.dropped);
  for (std::size_t i = 1; i < seen.size(); ++i) EXPECT_GT(seen[i].when, seen[i - 1].when);
}

TEST(Faults, DelayHoldsUpAFrameAndAllBehindIt) {
  FaultCounts counts;
  const auto seen = send_burst(kBurst, {.delay = 0.05}, &counts);
  ASSERT_EQ(seen.size(), static_cast<std::size_t>(kBurst));
  for (int i = 0; i < kBurst; ++i) {
    EXPECT_EQ(seen[static_cast<std::size_t>(i)].what, i % 251);
    EXPECT_GE(seen[static_cast<std::size_t>(i)].when, TimePoint(milliseconds(11 + i)));
  }
  EXPECT_NEAR(static_cast<double>(counts.delayed), 0.05 * kBurst, six_sigma(0.05));
}

TEST(Faults, DuplicateDeliversAFrameAgainWithinTheLongestDelay) {
  FaultCounts counts;
  const auto seen =
      send_burst(kBurst, {.duplicate = 0.1, .longest_delay = milliseconds(5)}, &counts);
  EXPECT_NEAR(static_cast<double>(counts.duplicated), 0.1 * kBurst, six_sigma(0.1));
  EXPECT_EQ(seen.size(), kBurst + counts.duplicated);
}

TEST(Faults, ReorderLetsLaterFramesPass) {
  FaultCounts counts;
  const auto seen = send_burst(200, {.reorder = 0.2}, &counts);
  ASSERT_EQ(seen.size(), 200U);
  std::vector<int> order = what_of(seen);
  EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
  std::sort(order.begin(), order.end());
  for (int i = 0; i < 200; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST(Faults, CorruptFlipsOneBitOfTheCopyThatArrives) {
  NetworkOptions options;
  options.faults = {.corrupt = 1};
  const FrameBytes sent = frame_of(0);
  run(2, std::move(options), [&](auto& ends, SimWorld&) {
    ends[0]->send(WorkerId(1), sent);
    const auto received = ends[1]->receive(kNever);
    ASSERT_TRUE(received);
    int flipped = 0;
    for (const std::byte byte : *received->bytes) {
      flipped += __builtin_popcount(std::to_integer<unsigned>(byte));
    }
    EXPECT_EQ(flipped, 1);
    EXPECT_TRUE(std::ranges::equal(*sent, *frame_of(0))) << "the sender's frame is as it was";
  });
}

TEST(Faults, StopAtTheirEnd) {
  FaultCounts counts;
  send_burst(100, {.drop = 1, .until = TimePoint{}}, &counts);
  EXPECT_EQ(counts.dropped, 0U);
}

TEST(Faults, AreAFunctionOfTheSeed) {
  const FaultPlan plan{.drop = 0.1, .delay = 0.1, .duplicate = 0.1, .reorder = 0.1};
  const auto first = what_of(send_burst(200, plan, nullptr, 1));
  EXPECT_EQ(what_of(send_burst(200, plan, nullptr, 1)), first);
  EXPECT_NE(what_of(send_burst(200, plan, nullptr, 2)), first);
}

TEST(Faults, APartitionSeparatesTwoRanksForItsIntervalOnly) {
  NetworkOptions options;
  options.faults.partitions = {
      {WorkerId(1), WorkerId(0), TimePoint(milliseconds(10)), TimePoint(milliseconds(20))}};
  run(3, std::move(options), [](auto& ends, SimWorld& world) {
    for (int ms = 0; ms < 30; ms += 5) {
      world.sleep_until(TimePoint(milliseconds(ms)));
      ends[0]->send(WorkerId(1), frame_of(static_cast<std::uint8_t>(ms)));
      ends[0]->send(WorkerId(2), frame_of(static_cast<std::uint8_t>(ms)));
    }
    const TimePoint end(seconds(1));
    EXPECT_EQ(what_of(receive_until(*ends[1], world, end)), (std::vector<int>{0, 5, 20, 25}));
    EXPECT_EQ(what_of(receive_until(*ends[2], world, end)),
              (std::vector<int>{0, 5, 10, 15, 20, 25}));
  });
}

TEST(Faults, APartitionOneWayLeavesTheOtherOpen) {
  NetworkOptions options;
  options.faults.partitions = {{.a = WorkerId(0),
                                .b = WorkerId(1),
                                .begin = TimePoint{},
                                .end = TimePoint(milliseconds(20)),
                                .one_way = true}};
  run(2, std::move(options), [](auto& ends, SimWorld& world) {
    ends[0]->send(WorkerId(1), frame_of(1));
    ends[1]->send(WorkerId(0), frame_of(2));
    const TimePoint end(seconds(1));
    EXPECT_EQ(what_of(receive_until(*ends[0], world, end)), (std::vector<int>{2}));
    EXPECT_EQ(what_of(receive_until(*ends[1], world, end)), (std::vector<int>{}));
  });
}

// Who is cut off for long is lost to the other, though it hears it; a shorter cut is no loss.
TEST(Faults, TwoBetweenWhichNothingPassesForLongLoseEachOther) {
  NetworkOptions options;
  options.faults.dead_after = seconds(1);
  options.faults.partitions = {
      {WorkerId(0), WorkerId(1), TimePoint(seconds(1)), TimePoint(seconds(3)), true},
      {WorkerId(0), WorkerId(2), TimePoint(seconds(1)), TimePoint(seconds(2))}};
  run(3, std::move(options), [](auto& ends, SimWorld& world) {
    const TimePoint end(seconds(5));
    for (const int m : {0, 1}) {
      const auto seen = receive_until(*ends[static_cast<std::size_t>(m)], world, end);
      EXPECT_EQ(what_of(seen), (std::vector<int>{m == 0 ? -2 : -1}));
      if (m == 0) {
        EXPECT_EQ(seen.front().when, TimePoint(seconds(2)));
      }
    }
    EXPECT_EQ(what_of(receive_until(*ends[2], world, end)), (std::vector<int>{}));
    ends[0]->send(WorkerId(1), frame_of(1));
    EXPECT_EQ(what_of(receive_until(*ends[1], world, TimePoint(seconds(6)))), (std::vector<int>{}))
        << "until one of them is restarted";
  });
}

// What a former process sent, or was sent, is of no concern to the next one; both ends are told of
// one another before anything passes, and not while they are parted.
TEST(Faults, ANewProcessMeetsTheOthersBeforeAnythingPasses) {
  SimWorld world(1);
  NetworkOptions options;
  options.faults.reorder = 1;  // late, so after the process that sent it
  options.faults.longest_delay = milliseconds(200);
  options.faults.until = TimePoint(milliseconds(1));
  options.faults.partitions = {
      {WorkerId(0), WorkerId(1), TimePoint(milliseconds(90)), TimePoint(milliseconds(150))}};
  SimNetwork network(world, 2, uniform_links(2, kLink), std::move(options));
  world.run([&] {
    std::vector<std::unique_ptr<Transport>> ends = network.endpoints();
    const auto next_of = [&](Transport& end) {
      const auto received = end.receive(TimePoint(seconds(9)));
      return received ? std::to_integer<int>((*received->bytes).back())
                      : -1 - static_cast<int>(received.error().kind);
    };
    constexpr int kLost = -1 - static_cast<int>(TransportError::Kind::kPeerLost);
    constexpr int kBack = -1 - static_cast<int>(TransportError::Kind::kPeerBack);
    ends[0]->send(WorkerId(1), frame_of(1));
    ends[1]->send(WorkerId(0), frame_of(2));
    network.crash(WorkerId(1));
    EXPECT_EQ(next_of(*ends[0]), kLost);
    world.sleep_until(TimePoint(milliseconds(100)));
    const std::unique_ptr<Transport> next = network.restart(WorkerId(1), 7);
    ends[0]->send(WorkerId(1), frame_of(3));
    next->send(WorkerId(0), frame_of(4));
    EXPECT_EQ(next_of(*ends[0]), kBack);
    EXPECT_EQ(world.clock().now(), TimePoint(milliseconds(170))) << "a round trip after the cut";
    next->send(WorkerId(0), frame_of(5));  // it has not been told yet: lost
    EXPECT_EQ(next_of(*next), kBack);
    ends[0]->send(WorkerId(1), frame_of(6));
    next->send(WorkerId(0), frame_of(7));
    EXPECT_EQ(next_of(*next), 6);
    EXPECT_EQ(next_of(*ends[0]), 7);
    ends[1]->send(WorkerId(0), frame_of(8));  // of the former process
    ends[1].reset();
    next->send(WorkerId(0), frame_of(9));
    EXPECT_EQ(next_of(*ends[0]), 9);
  });
}

TEST(Faults, ACrashLosesWhatHadNotLeftAndTheOthersLearnOfItLater) {
  NetworkOptions options;
  options.faults.crashes = {{WorkerId(0), TimePoint(nanoseconds(2'500'000))}};
  bool unwound = false;
  run(2, std::move(options), [&](auto& ends, SimWorld& world) {
    const auto victim = world.spawn_in_group(0, "victim", [&] {
      try {
        for (std::uint8_t i = 0; i < 5; ++i) ends[0]->send(WorkerId(1), frame_of(i));
        world.compute(seconds(100), [] {});
      } catch (const RankCrashed& crash) {
        EXPECT_EQ(crash.rank, WorkerId(0));
        unwound = true;
        throw;
      }
    });
    const auto seen = receive_until(*ends[1], world, TimePoint(seconds(1)));
    // Two frames of a millisecond each had left whole; the news takes the link's 10 ms.
    EXPECT_EQ(what_of(seen), (std::vector<int>{0, 1, -1}));
    EXPECT_EQ(seen.back().when, TimePoint(nanoseconds(12'500'000)));
  });
  EXPECT_TRUE(unwound);
}

TEST(Faults, PlansOutOfRangeAreRefusedByName) {
  const auto message = [](const FaultPlan& plan) {
    try {
      check_faults(plan, 4);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(message({}), "accepted");
  EXPECT_EQ(message({.drop = 1.5}), "faults.drop = 1.5: must be in [0, 1], a probability");
  EXPECT_EQ(message({.crashes = {{WorkerId(4), TimePoint{}}}}),
            "faults.crash: rank 4 does not exist; there are ranks 0..3");
  EXPECT_THAT(message({.slowdowns = {{WorkerId(1), 0}}}),
              ::testing::HasSubstr("slowdown of rank 1"));
  EXPECT_THAT(message({.longest_delay = Duration::zero()}),
              ::testing::HasSubstr("faults.longest_delay"));
  EXPECT_THAT(message({.dead_after = Duration::zero()}), ::testing::HasSubstr("faults.dead_after"));
}

// --- topology ------------------------------------------------------------------------------------

}  // namespace
}  // namespace isthmus::this_file
