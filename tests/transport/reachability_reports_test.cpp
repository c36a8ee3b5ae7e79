// SPDX-License-Identifier: Apache-2.0
// Who goes of members that cannot get values to one another. Time is a number.
#include "transport/exchange/reachability_reports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace isthmus::this_file {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class ReachabilityReportsOf : public ::testing::Test {
 protected:
  void note(int from, int to) { rifts_.note(WorkerId(from), WorkerId(to), "stalled", now_); }
  /// Who goes when what was reported is due, and no sooner.
  std::vector<int> gone() {
    std::set<WorkerId> live;
    for (int m = 0; m < 6; ++m) {
      if (!out_.contains(m)) live.insert(WorkerId(m));
    }
    now_ = rifts_.due() - 1ms;
    EXPECT_THAT(rifts_.settle(now_, WorkerId(0), live), IsEmpty());
    now_ += 1ms;
    std::vector<int> who;
    for (const ReachabilityReports::Gone& each : rifts_.settle(now_, WorkerId(0), live)) {
      who.push_back(each.who.value());
      out_.insert(each.who.value());
    }
    EXPECT_EQ(rifts_.due(), kNever);
    return who;
  }
  ReachabilityReports rifts_;
  TimePoint now_{};
  std::set<int> out_;
};

TEST_F(ReachabilityReportsOf, OnePairLosesWhoseValuesVanish) {
  note(2, 1);
  EXPECT_TRUE(rifts_.open(WorkerId(2), WorkerId(1)));
  EXPECT_FALSE(rifts_.open(WorkerId(1), WorkerId(2)));
  EXPECT_THAT(gone(), ElementsAre(2));
  EXPECT_FALSE(rifts_.open(WorkerId(2), WorkerId(1)));
}

TEST_F(ReachabilityReportsOf, SeveralPairsLoseWhomTheyHaveInCommon) {
  for (const int peer : {1, 2}) note(3, peer);
  EXPECT_THAT(gone(), ElementsAre(3));
  for (const int peer : {1, 2}) note(peer, 4);
  EXPECT_THAT(gone(), ElementsAre(4));
}

TEST_F(ReachabilityReportsOf, TwoFaultyWaysLoseTwo) {
  for (const int peer : {1, 2, 5}) note(3, peer);
  for (const int peer : {1, 2, 5}) note(peer, 4);
  EXPECT_THAT(gone(), UnorderedElementsAre(3, 4));
}

// A reports in the first round, B a long round later: by then it is known who has it in common.
TEST_F(ReachabilityReportsOf, WhatWasFoundBeforeTells) {
  note(1, 3);
  EXPECT_THAT(gone(), ElementsAre(1));
  now_ += 10min;
  note(2, 3);
  EXPECT_THAT(gone(), ElementsAre(3));
}

TEST_F(ReachabilityReportsOf, WhatWasFoundLongBeforeIsForgotten) {
  note(1, 3);
  EXPECT_THAT(gone(), ElementsAre(1));
  now_ += 2h;
  note(2, 3);
  EXPECT_THAT(gone(), ElementsAre(2));
}

TEST_F(ReachabilityReportsOf, TheCoordinatorGoesWhenItsOwnValuesReachNoneOfSeveral) {
  for (const int peer : {1, 2, 3, 4, 5}) note(0, peer);
  EXPECT_THAT(gone(), ElementsAre(0));
  out_ = {1, 2, 3, 4};
  note(0, 5);
  EXPECT_THAT(gone(), ElementsAre(5)) << "one other is not several";
}

// Nothing goes on without it.
TEST_F(ReachabilityReportsOf, TheCoordinatorStaysWhereItReachesSomebody) {
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

TEST_F(ReachabilityReportsOf, WhatWasReportedOfAProcessIsNotHeldAgainstTheNext) {
  note(2, 1);
  note(3, 4);
  rifts_.gone(WorkerId(2));
  EXPECT_FALSE(rifts_.open(WorkerId(2), WorkerId(1)));
  EXPECT_THAT(gone(), ElementsAre(3));
}

TEST_F(ReachabilityReportsOf, AReportSaidAgainIsOneInTheWordsOfWhoKnows) {
  rifts_.note(WorkerId(2), WorkerId(1), "", now_);
  now_ += 1s;
  note(2, 1);
  EXPECT_EQ(rifts_.due(), TimePoint{} + ReachabilityReports::kGather);
  EXPECT_EQ(rifts_.settle(rifts_.due(), WorkerId(0), {WorkerId(1), WorkerId(2)}).at(0).why,
            "its values do not get through to worker 1: stalled");
}

}  // namespace
}  // namespace isthmus::this_file
