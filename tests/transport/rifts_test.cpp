// SPDX-License-Identifier: Apache-2.0
// Who goes of members that cannot get values to one another. Time is a number.
#include "transport/rifts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace isthmus {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class RiftsOf : public ::testing::Test {
 protected:
  void note(int from, int to) { rifts_.note(Rank(from), Rank(to), "stalled", now_); }
  /// Who goes when what was reported is due, and no sooner.
  std::vector<int> gone() {
    std::set<Rank> live;
    for (int m = 0; m < 6; ++m) {
      if (!out_.contains(m)) live.insert(Rank(m));
    }
    now_ = rifts_.due() - 1ms;
    EXPECT_THAT(rifts_.settle(now_, Rank(0), live), IsEmpty());
    now_ += 1ms;
    std::vector<int> who;
    for (const Rifts::Gone& each : rifts_.settle(now_, Rank(0), live)) {
      who.push_back(each.who.value());
      out_.insert(each.who.value());
    }
    EXPECT_EQ(rifts_.due(), kNever);
    return who;
  }
  Rifts rifts_;
  TimePoint now_{};
  std::set<int> out_;
};

TEST_F(RiftsOf, OnePairLosesWhoseValuesVanish) {
  note(2, 1);
  EXPECT_TRUE(rifts_.open(Rank(2), Rank(1)));
  EXPECT_FALSE(rifts_.open(Rank(1), Rank(2)));
  EXPECT_THAT(gone(), ElementsAre(2));
  EXPECT_FALSE(rifts_.open(Rank(2), Rank(1)));
}

TEST_F(RiftsOf, SeveralPairsLoseWhomTheyHaveInCommon) {
  for (const int peer : {1, 2}) note(3, peer);
  EXPECT_THAT(gone(), ElementsAre(3));
  for (const int peer : {1, 2}) note(peer, 4);
  EXPECT_THAT(gone(), ElementsAre(4));
}

TEST_F(RiftsOf, TwoFaultyWaysLoseTwo) {
  for (const int peer : {1, 2, 5}) note(3, peer);
  for (const int peer : {1, 2, 5}) note(peer, 4);
  EXPECT_THAT(gone(), UnorderedElementsAre(3, 4));
}

// A reports in the first round, B a long round later: by then it is known who has it in common.
TEST_F(RiftsOf, WhatWasFoundBeforeTells) {
  note(1, 3);
  EXPECT_THAT(gone(), ElementsAre(1));
  now_ += 10min;
  note(2, 3);
  EXPECT_THAT(gone(), ElementsAre(3));
}

TEST_F(RiftsOf, WhatWasFoundLongBeforeIsForgotten) {
  note(1, 3);
  EXPECT_THAT(gone(), ElementsAre(1));
  now_ += 2h;
  note(2, 3);
  EXPECT_THAT(gone(), ElementsAre(2));
}

TEST_F(RiftsOf, TheCoordinatorGoesWhenItsOwnValuesReachNoneOfSeveral) {
  for (const int peer : {1, 2, 3, 4, 5}) note(0, peer);
  EXPECT_THAT(gone(), ElementsAre(0));
  out_ = {1, 2, 3, 4};
  note(0, 5);
  EXPECT_THAT(gone(), ElementsAre(5)) << "one other is not several";
}

// Nothing goes on without it.
TEST_F(RiftsOf, TheCoordinatorStaysWhereItReachesSomebody) {
  note(0, 2);
  EXPECT_THAT(gone(), ElementsAre(2));
  out_.clear();
  for (const int peer : {1, 3}) note(peer, 0);
  EXPECT_THAT(gone(), ElementsAre(1, 3)) << "they have given it up";
  out_.clear();
  for (const int from : {0, 3}) {
    for (const int to : {1, 2}) note(from, to);
  }
  EXPECT_THAT(gone(), ElementsAre(1, 2)) << "its other values arrive";
}

TEST_F(RiftsOf, WhatWasReportedOfAProcessIsNotHeldAgainstTheNext) {
  note(2, 1);
  note(3, 4);
  rifts_.gone(Rank(2));
  EXPECT_FALSE(rifts_.open(Rank(2), Rank(1)));
  EXPECT_THAT(gone(), ElementsAre(3));
}

TEST_F(RiftsOf, AReportSaidAgainIsOneInTheWordsOfWhoKnows) {
  rifts_.note(Rank(2), Rank(1), "", now_);
  now_ += 1s;
  note(2, 1);
  EXPECT_EQ(rifts_.due(), TimePoint{} + Rifts::kGather);
  EXPECT_EQ(rifts_.settle(rifts_.due(), Rank(0), {Rank(1), Rank(2)}).at(0).why,
            "its values do not get through to worker 1: stalled");
}

}  // namespace
}  // namespace isthmus
