// SPDX-License-Identifier: Apache-2.0
// Too few sites are left: all stand after one step, and whoever comes back has its turn.
#include <gtest/gtest.h>

#include "site_agreement_fixture.h"

namespace isthmus::app::this_file {
namespace {

TEST(SiteAgreement, TooFewWaitAfterOneStepUntilEnoughAreBack) {
  int stood = 0, stood_twice = 0;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    const int members = 2 + static_cast<int>(seed % 4);
    const int min_sites = 2 + static_cast<int>(seed / 4 % static_cast<std::uint64_t>(members - 1));
    Sites sites(members, seed, min_sites);
    const int victims = 1 + static_cast<int>(sites.draw(static_cast<std::size_t>(members) - 1));
    std::vector<std::size_t> death_at;
    for (int m = 1; m <= victims; ++m) death_at.push_back(sites.draw(100));
    int back = 0, stands = 0;
    for (std::size_t events = 0;; ++events) {
      ASSERT_LT(events, 20000U) << "seed " << seed;
      for (int m = 1; m <= victims; ++m) {
        if (events == death_at[static_cast<std::size_t>(m) - 1]) sites.kill(m);
      }
      if (sites.advance()) continue;
      if (events < 100 && !sites.over(0)) continue;  // somebody is still to die
      if (sites.over(0)) break;
      ++stands;
      for (int m = 0; m < members; ++m) {
        if (sites.dead(m)) continue;
        ASSERT_TRUE(sites.waits(m)) << "seed " << seed << ", site " << m;
        ASSERT_EQ(sites.step(m), sites.step(0)) << "seed " << seed << ", site " << m;
        ASSERT_TRUE(sites.checkpoints(m).contains(sites.step(0))) << "seed " << seed;
      }
      // Who has come back is taken in by now, so it is the next one's turn.
      ASSERT_TRUE(back == 0 || sites.step(0) >= *sites.joined_after() + kWindow) << "seed " << seed;
      ASSERT_LT(back, victims) << "seed " << seed << ": all are there";
      sites.let_in(++back);
    }
    for (int m = 0; m < members; ++m) {
      if (sites.dead(m)) continue;
      ASSERT_TRUE(sites.over(m)) << "seed " << seed << ", site " << m << " waits for ever";
      ASSERT_EQ(sites.step(m), kSteps) << "seed " << seed << ", site " << m;
    }
    stood += stands > 0 ? 1 : 0;
    stood_twice += stands > 1 ? 1 : 0;
  }
  EXPECT_GT(stood, 250);
  EXPECT_GT(stood_twice, 50);
}

TEST(SiteAgreement, ARunThatIsToEndDoesNotStand) {
  SiteAgreement first(WorkerId(0), 2, kSteps, 0, 2);
  first.look_ahead(5);
  ASSERT_TRUE(first.begin(StepIndex(7)));
  NotesOut out;
  first.wish(Purpose::kRequeue, out);
  first.receive(WorkerId(1), HoldNote{1, StepIndex(9)}, out);
  first.leave(WorkerId(1), out);
  for (std::int64_t t = 8; t <= 12; ++t) EXPECT_TRUE(first.begin(StepIndex(t))) << t;
  EXPECT_FALSE(first.begin(StepIndex(13)));
}

TEST(SiteAgreement, ARunThatStandsEndsWhereItStands) {
  SiteAgreement first(WorkerId(0), 2, kSteps, 0, 2);
  ASSERT_TRUE(first.begin(StepIndex(7)));
  NotesOut out;
  first.leave(WorkerId(1), out);
  ASSERT_TRUE(first.begin(StepIndex(8)));
  EXPECT_TRUE(first.checkpoint_after(StepIndex(8)));
  EXPECT_FALSE(first.begin(StepIndex(9)));
  first.wish(Purpose::kRequeue, out);
  ASSERT_TRUE(first.stop().has_value());
  EXPECT_EQ(first.stop()->first, 8);
  EXPECT_FALSE(first.waits(StepIndex(9)));
  EXPECT_FALSE(first.begin(StepIndex(9)));
}

// With as many steps ahead as are left, the answer would be the last step, where a stop is none.
TEST(SiteAgreement, ARunThatIsToStandIsStoppedThere) {
  SiteAgreement first(WorkerId(0), 2, kSteps, 0, 2);
  first.look_ahead(5);
  const std::int64_t stands = kSteps - 2;
  ASSERT_TRUE(first.begin(StepIndex(stands - 5)));
  NotesOut out;
  first.leave(WorkerId(1), out);
  for (std::int64_t t = stands - 4; t < stands; ++t) ASSERT_TRUE(first.begin(StepIndex(t))) << t;
  first.wish(Purpose::kInterrupt, out);
  ASSERT_TRUE(first.stop().has_value());
  EXPECT_EQ(first.stop()->first, stands);
}

}  // namespace
}  // namespace isthmus::app::this_file
