// SPDX-License-Identifier: Apache-2.0
// How long the others wait for who is late.
#include "transport/exchange/round_deadline.h"

#include <gtest/gtest.h>

#include <chrono>
#include <vector>

namespace isthmus::this_file {
namespace {

using namespace std::chrono_literals;

RoundDeadline taught(const std::vector<Duration>& late) {
  RoundDeadline deadline = RoundDeadline::adaptive(60s);
  for (const Duration each : late) deadline.began(each);
  return deadline;
}

TEST(RoundDeadline, IsFixedOrTheLongestUntilFourRoundsAreKnown) {
  RoundDeadline fixed(20s);
  for (int k = 0; k < 9; ++k) fixed.began(1h);
  EXPECT_EQ(fixed.get(), 20s);
  EXPECT_EQ(taught({}).get(), 60s);
  EXPECT_EQ(taught({0s, 0s, 0s}).get(), 60s);
  EXPECT_EQ(taught({0s, 0s, 0s, 0s}).get(), 1s) << "the shortest";
}

// Sorted 2 3 4 5 9: the median is 4 s; from it they are 2 1 0 1 5 apart, the median of which is 1.
TEST(RoundDeadline, IsTheMedianAndFourMedianDeviations) {
  EXPECT_EQ(taught({9s, 3s, 5s, 2s, 4s}).get(), 8s);
  EXPECT_EQ(taught({1h, 1h, 1h, 1h}).get(), 60s) << "the longest";
  EXPECT_EQ(taught({kNever - TimePoint{}, 0s, kNever - TimePoint{}, 1h, 1s}).get(), 60s);
}

TEST(RoundDeadline, KnowsTheLastThirtyTwoRoundsOnly) {
  std::vector<Duration> late(40, 10s);
  EXPECT_EQ(taught(late).get(), 11s);
  late.insert(late.end(), 16, 3s);
  EXPECT_EQ(taught(late).get(), 38s) << "10 s and four times 7 s: half are of either kind";
  late.insert(late.end(), 1, 3s);
  EXPECT_EQ(taught(late).get(), 4s) << "most are of the new one";
}

}  // namespace
}  // namespace isthmus::this_file
