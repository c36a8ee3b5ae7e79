// SPDX-License-Identifier: Apache-2.0
// Who goes of members that have lost one another. Time is a number.
#include "transport/cuts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace isthmus {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class CutsOf : public ::testing::Test {
 protected:
  void note(int from, int to) { cuts_.note(Rank(from), Rank(to), "silent", now_); }
  /// Who goes by now.
  std::vector<int> gone() {
    std::vector<int> who;
    while (const auto gone = cuts_.settle(now_)) {
      who.push_back(gone->who.value());
      cuts_.gone(gone->who);
    }
    return who;
  }
  std::vector<int> gone_in_time() {
    now_ += Cuts::kGather - 1ms;
    EXPECT_THAT(gone(), IsEmpty());
    now_ += 1ms;
    return gone();
  }
  Cuts cuts_;
  TimePoint now_{};
};

TEST_F(CutsOf, OnePairLosesWhoWasReportedFirst) {
  note(2, 1);
  now_ += 1ms;
  note(1, 2);
  now_ -= 1ms;
  EXPECT_THAT(gone_in_time(), ElementsAre(1));
  EXPECT_EQ(cuts_.due(), kNever);
}

// Whoever reports first, and whether the one cut off says so itself, or the others, or all of them.
TEST_F(CutsOf, SeveralPairsLoseWhomTheyHaveInCommonAsSoonAsTwoSaySo) {
  const std::vector<std::pair<int, int>> all = {{4, 1}, {4, 2}, {4, 3}, {1, 4}, {2, 4}, {3, 4}};
  std::vector<std::size_t> order = {0, 1, 2, 3, 4, 5};
  do {
    cuts_ = {};
    std::vector<int> who;
    for (const std::size_t each : order) {
      note(all[each].first, all[each].second);
      if (who = gone(); !who.empty()) break;
    }
    ASSERT_THAT(who, ElementsAre(4)) << ::testing::PrintToString(order);
  } while (std::ranges::next_permutation(order).found);
}

// Two have died, and one member sees it before all others: it is no more in common than they are.
TEST_F(CutsOf, WhoAloneReportsSeveralIsHeardOut) {
  for (const int dead : {1, 2}) note(4, dead);
  EXPECT_THAT(gone(), IsEmpty());
  for (const int dead : {1, 2}) note(3, dead);
  EXPECT_THAT(gone(), IsEmpty());
  for (const int dead : {1, 2}) cuts_.gone(Rank(dead));  // whoever coordinates has lost them too
  EXPECT_EQ(cuts_.due(), kNever);
  for (const int peer : {1, 2}) note(4, peer);
  EXPECT_THAT(gone_in_time(), ElementsAre(4)) << "nobody else has lost them";
}

TEST_F(CutsOf, TwoThatAreCutOffBothGoAndNobodyElse) {
  for (const int peer : {1, 2, 5}) note(3, peer);
  for (const int peer : {1, 2, 5}) note(peer, 4);
  EXPECT_THAT(gone_in_time(), UnorderedElementsAre(3, 4));
}

// A chain: who is reported to have lost one alone is nobody's common one.
TEST_F(CutsOf, WhereTwoHaveAsManyItIsWaitedForMore) {
  note(1, 2);
  note(3, 2);
  note(4, 3);
  EXPECT_THAT(gone(), IsEmpty());
  note(5, 3);
  EXPECT_THAT(gone_in_time(), ElementsAre(3, 2)) << "1 has lost 2 all the same";
}

TEST_F(CutsOf, WhoHasGoneTakesItsReportsAlong) {
  note(2, 1);
  note(3, 4);
  EXPECT_TRUE(cuts_.reported(Rank(1)));
  EXPECT_FALSE(cuts_.reported(Rank(2)));
  cuts_.gone(Rank(2));
  EXPECT_FALSE(cuts_.reported(Rank(1)));
  cuts_.forget(Rank(4), Rank(3));
  EXPECT_EQ(cuts_.due(), kNever);
}

TEST_F(CutsOf, SaysWhoHasLostWhom) {
  note(2, 1);
  note(2, 1);  // said again
  EXPECT_EQ(cuts_.settle(now_ + Cuts::kGather)->why, "worker 2 has lost it: silent");
  for (const int peer : {1, 3}) note(2, peer);
  EXPECT_EQ(cuts_.settle(now_ + Cuts::kGather)->why,
            "it has lost worker 1, and others too: silent");
}

}  // namespace
}  // namespace isthmus
