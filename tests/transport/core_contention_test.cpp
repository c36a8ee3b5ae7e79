// SPDX-License-Identifier: Apache-2.0
// When waits may yield: always on a core of their own, seldom on a contended one.
#include "transport/collectives/core_contention.h"

#include <gtest/gtest.h>

namespace isthmus::this_file {
namespace {

using namespace std::chrono_literals;

/// Waits that sleep at once before the next one that may yield.
int waits_without_yield(CoreContention& core) {
  int waits = 0;
  while (!core.may_yield()) ++waits;
  return waits;
}

TEST(CoreContention, WaitsOnACoreAloneAlwaysYield) {
  CoreContention core;
  for (int wait = 0; wait < 10'000; ++wait) {
    ASSERT_TRUE(core.may_yield()) << wait;
    core.note_yield(CoreContention::kLongYield - 1ns);
  }
}

TEST(CoreContention, AfterALongYieldTheNextWaitsSleep) {
  CoreContention core;
  ASSERT_TRUE(core.may_yield());
  core.note_yield(CoreContention::kLongYield);
  EXPECT_EQ(waits_without_yield(core), CoreContention::kFewestWaits);
}

TEST(CoreContention, EachLongYieldInSuccessionDoublesThatNumberUpToABound) {
  CoreContention core;
  ASSERT_TRUE(core.may_yield());
  for (int expected = CoreContention::kFewestWaits; expected < CoreContention::kMostWaits;
       expected *= 2) {
    core.note_yield(3ms);
    ASSERT_EQ(waits_without_yield(core), expected);
  }
  for (int again = 0; again < 3; ++again) {
    core.note_yield(3ms);
    EXPECT_EQ(waits_without_yield(core), CoreContention::kMostWaits);
  }
}

TEST(CoreContention, LongYieldsThatComeTogetherCountAsOne) {
  CoreContention core;
  ASSERT_TRUE(core.may_yield());
  for (int thread = 0; thread < 8; ++thread) core.note_yield(3ms);
  EXPECT_EQ(waits_without_yield(core), CoreContention::kFewestWaits);
}

TEST(CoreContention, WaitsWhoseYieldsAreShortForgetIt) {
  CoreContention core;
  ASSERT_TRUE(core.may_yield());
  for (int i = 0; i < 8; ++i) {
    core.note_yield(3ms);
    (void)waits_without_yield(core);
  }
  for (int wait = 0; wait < 7; ++wait) ASSERT_TRUE(core.may_yield());  // 1024 to 16 is six halves
  core.note_yield(3ms);
  EXPECT_EQ(waits_without_yield(core), CoreContention::kFewestWaits);
}

}  // namespace
}  // namespace isthmus::this_file
