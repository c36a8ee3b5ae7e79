// SPDX-License-Identifier: Apache-2.0
// The number of connections against lines that are made up: what one connection brings follows from
// the loss (Mathis), and all together from the line.
#include "transport/links/stream_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace isthmus::this_file {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Le;

constexpr int kFewest = 4, kMost = 24;

/// A line that carries `full` segments a second, with a round trip of 50 ms.
struct Line {
  double full = 8000;
  double loss = 0;           // of packets, at random
  bool bbr = false;          // which does not mind loss
  double full_loss = 0.001;  // where connections want more than the line has: queues overflow
  bool waits = true;

  /// What n connections bring in `seconds`, added to what was counted.
  void run(int n, double seconds, LinkCounters& counted) {
    const double mathis = loss > 0 && !bbr ? 1.22 / (0.05 * std::sqrt(loss)) : full;
    const double rate = std::min(full, n * mathis);
    // The share that is lost when n connections fill the line: that which holds them to it.
    const double share = rate < full ? loss : std::max(loss, full_loss * n / kFewest);
    sent_ += rate * seconds;
    repeated_ += rate * seconds * share;
    counted.segments = static_cast<std::uint64_t>(sent_);
    counted.retransmits = static_cast<std::uint64_t>(repeated_);
    counted.congestion = bbr ? "bbr" : "cubic";
    counted.busy +=
        std::chrono::duration_cast<Duration>(std::chrono::duration<double>(n * seconds));
  }
  /// The number after each of so many times that enough was sent: those after a change decide
  /// nothing yet.
  std::vector<int> numbers(StreamPolicy& policy, int times) {
    std::vector<int> numbers;
    for (int i = 0; i < times; ++i) {
      LinkCounters counted = counted_;
      const int before = policy.streams();
      (void)policy.observe(counted, waits);  // where it begins to count
      do {
        run(before, 1, counted);
      } while (counted.segments - counted_.segments < 100 + enough(before));
      counted_ = counted;
      numbers.push_back(policy.observe(counted, waits));
    }
    return numbers;
  }

  static std::uint64_t enough(int n) {
    return std::max(StreamPolicy::kSegments,
                    StreamPolicy::kSegmentsEach * static_cast<std::uint64_t>(n));
  }

  double sent_ = 0, repeated_ = 0;
  LinkCounters counted_;
};

TEST(StreamPolicy, RandomLossHasItGrowToTheMost) {
  Line line{.full = 50000, .loss = 0.001};  // a connection gets 772 segments a second
  StreamPolicy policy(kFewest, kMost);
  EXPECT_THAT(line.numbers(policy, 10), ElementsAre(4, 8, 8, 16, 16, 24, 24, 24, 24, 24));
}

TEST(StreamPolicy, ACleanLineKeepsTheFewest) {
  Line line{.full_loss = 0.0001};
  StreamPolicy policy(kFewest, kMost);
  EXPECT_THAT(line.numbers(policy, 1000), Each(kFewest));
}

// Full queues drop packets: growing is tried, taken back at the next decision, and tried again ever
// more seldom.
TEST(StreamPolicy, WhatBringsNothingIsTakenBackAndSeldomTried) {
  Line line{.full_loss = 0.0005};
  StreamPolicy policy(kFewest, kMost);
  const std::vector<int> numbers = line.numbers(policy, 1000);
  EXPECT_THAT(numbers, Each(Le(2 * kFewest)));
  const auto tries = std::ranges::count(numbers, 2 * kFewest) / 2;
  EXPECT_GE(tries, 2);
  EXPECT_LE(tries, 1000 / StreamPolicy::kLongestHold + 3);
}

// BBR gets all there is whatever is lost.
TEST(StreamPolicy, WithBbrNothingIsTried) {
  Line line{.loss = 0.001, .bbr = true};
  StreamPolicy policy(kFewest, kMost);
  EXPECT_THAT(line.numbers(policy, 1000), Each(kFewest));
}

TEST(StreamPolicy, ItStopsWhereTheLineIsFull) {
  Line line{.full = 5000, .loss = 0.001};  // 7 connections fill it
  StreamPolicy policy(kFewest, kMost);
  EXPECT_THAT(line.numbers(policy, 8), ElementsAre(4, 8, 8, 16, 16, 8, 8, 8));
}

TEST(StreamPolicy, WhenLossEndsItComesBack) {
  Line line{.full = 50000, .loss = 0.001};
  StreamPolicy policy(kFewest, kMost);
  (void)line.numbers(policy, 8);
  ASSERT_EQ(policy.streams(), kMost);
  line.loss = 0;
  line.full_loss = 0;
  const std::vector<int> numbers = line.numbers(policy, 3 * (StreamPolicy::kCalm + 1));
  EXPECT_EQ(numbers.front(), kMost) << "a moment without loss is none";
  EXPECT_TRUE(std::ranges::is_sorted(numbers, std::greater<>()));
  EXPECT_EQ(numbers.back(), kFewest);
}

TEST(StreamPolicy, WithoutFramesThatWaitNothingGrows) {
  Line line{.loss = 0.001, .waits = false};
  StreamPolicy policy(kFewest, kMost);
  EXPECT_THAT(line.numbers(policy, 100), Each(kFewest));
}

TEST(StreamPolicy, OneRepetitionIsNoLossAndTwoAre) {
  StreamPolicy policy(kFewest, kMost);
  const auto after = [&](std::uint64_t times, std::uint64_t repeated) {
    return policy.observe({.segments = times * StreamPolicy::kSegments, .retransmits = repeated},
                          true);
  };
  (void)after(0, 0);
  EXPECT_EQ(after(1, 7), kFewest) << "connections that start count for nothing";
  EXPECT_EQ(after(2, 8), kFewest);
  EXPECT_EQ(after(3, 10), 2 * kFewest);
}

// A connection that broke counts from 0 again, so the sum is less than before.
TEST(StreamPolicy, CountersThatBeginAnewAreNoLoss) {
  StreamPolicy policy(kFewest, kMost);
  (void)policy.observe({.segments = 1'000'000, .retransmits = 500}, true);
  (void)policy.observe({.segments = 1'010'000, .retransmits = 500}, true);
  EXPECT_EQ(policy.observe({.segments = 1'020'000, .retransmits = 400}, true), kFewest);
  EXPECT_EQ(policy.observe({.segments = 1'030'000, .retransmits = 400}, true), kFewest);
}

TEST(StreamPolicy, WhereTheFewestAreTheMostItStays) {
  Line line{.loss = 0.001};
  StreamPolicy policy(kFewest, kFewest);
  EXPECT_THAT(line.numbers(policy, 20), Each(kFewest));
}

}  // namespace
}  // namespace isthmus::this_file
