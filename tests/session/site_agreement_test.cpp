// SPDX-License-Identifier: Apache-2.0
// Sites at unlike steps, notes that take unlike times, sites that die, leave and come back:
// whatever the order, all of them stop and lay down checkpoints after the same steps, and nobody
// waits for ever.
#include <gtest/gtest.h>

#include <set>

#include "site_agreement_fixture.h"

namespace isthmus::app::this_file {
namespace {

TEST(SiteAgreement, AllStopAfterOneStepInAnyOrderOfEvents) {
  int stopped_early = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    const int members = 1 + static_cast<int>(seed % 5);
    Sites sites(members, seed);
    const std::size_t wish_at = sites.draw(80);
    for (std::size_t events = 0; sites.advance(); ++events) {
      if (events == wish_at) {
        sites.wish(static_cast<int>(sites.draw(static_cast<std::size_t>(members))),
                   Purpose::kInterrupt);
      }
      if (events == wish_at + 3) {  // another one, of another kind: the first decides
        sites.wish(static_cast<int>(sites.draw(static_cast<std::size_t>(members))),
                   Purpose::kRequeue);
      }
      ASSERT_LT(events, 10000U) << "seed " << seed;
    }
    for (int m = 0; m < members; ++m) {
      ASSERT_TRUE(sites.over(m)) << "seed " << seed << ", site " << m;
      ASSERT_EQ(sites.step(m), sites.step(0)) << "seed " << seed << ", site " << m;
    }
    stopped_early += sites.step(0) < kSteps ? 1 : 0;
  }
  EXPECT_GT(stopped_early, 1000);  // the schedules do reach what is tested
}

TEST(SiteAgreement, AllLayDownTheSameCheckpoints) {
  std::size_t laid_down = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    const int members = 2 + static_cast<int>(seed % 4);
    Sites sites(members, seed);
    const std::size_t first = sites.draw(60);
    const std::size_t second = first + sites.draw(60);
    for (std::size_t events = 0; sites.advance(); ++events) {
      if (events == first || events == second) sites.wish(0, Purpose::kCheckpoint);
      ASSERT_LT(events, 10000U) << "seed " << seed;
    }
    for (int m = 0; m < members; ++m) {
      ASSERT_EQ(sites.step(m), kSteps) << "seed " << seed << ", site " << m;
      ASSERT_EQ(sites.checkpoints(m), sites.checkpoints(0)) << "seed " << seed << ", site " << m;
    }
    laid_down += sites.checkpoints(0).size();
  }
  EXPECT_GT(laid_down, 4000U);  // the one at the end and two more, but for those that came too late
}

TEST(SiteAgreement, WhoeverDiesTheOthersAgree) {
  int stopped_early = 0;
  std::size_t laid_down = 0;
  for (std::uint64_t seed = 0; seed < 4000; ++seed) {
    const int members = 2 + static_cast<int>(seed % 4);
    Sites sites(members, seed);
    const auto someone = [&] { return sites.draw(static_cast<std::size_t>(members)); };
    const std::size_t checkpoint_at = sites.draw(60);
    const std::size_t stop_at = sites.draw(200);
    const std::size_t death_at = sites.draw(60);
    const int victim = 1 + static_cast<int>(sites.draw(static_cast<std::size_t>(members) - 1));
    for (std::size_t events = 0; sites.advance(); ++events) {
      if (events == checkpoint_at) sites.wish(0, Purpose::kCheckpoint);
      if (events == stop_at) {
        const int m = static_cast<int>(someone());
        if (!sites.dead(m)) sites.wish(m, Purpose::kInterrupt);
      }
      if (events == death_at) sites.kill(victim);
      ASSERT_LT(events, 10000U) << "seed " << seed;
    }
    for (int m = 0; m < members; ++m) {
      if (sites.dead(m)) continue;
      ASSERT_TRUE(sites.over(m)) << "seed " << seed << ", site " << m << " waits for ever";
      ASSERT_EQ(sites.step(m), sites.step(0)) << "seed " << seed << ", site " << m;
      ASSERT_EQ(sites.checkpoints(m), sites.checkpoints(0)) << "seed " << seed << ", site " << m;
    }
    stopped_early += sites.step(0) < kSteps ? 1 : 0;
    laid_down += sites.checkpoints(0).size();
  }
  EXPECT_GT(stopped_early, 1000);
  EXPECT_GT(laid_down, 6000U);
}

TEST(SiteAgreement, AJoinerTakesPartInWhatComesAfterItsStep) {
  int joined = 0;
  int with_more = 0;  // of those, with something agreed for a step after the join
  for (std::uint64_t seed = 0; seed < 4000; ++seed) {
    const int members = 2 + static_cast<int>(seed % 4);
    Sites sites(members, seed);
    const std::size_t checkpoint_at = sites.draw(150);
    const std::size_t stop_at = sites.draw(300);
    const int victim = 1 + static_cast<int>(sites.draw(static_cast<std::size_t>(members) - 1));
    sites.bring_back(victim);
    const std::size_t death_at = sites.draw(60);
    for (std::size_t events = 0; sites.advance(); ++events) {
      if (events == checkpoint_at) sites.wish(0, Purpose::kCheckpoint);
      if (events == stop_at) sites.wish(0, Purpose::kRequeue);
      if (events == death_at) sites.kill(victim);
      ASSERT_LT(events, 10000U) << "seed " << seed;
    }
    const std::int64_t after = sites.joined_after().value_or(kSteps);
    const std::int64_t end = sites.step(0);
    for (int m = 0; m < members; ++m) {
      if (sites.dead(m)) continue;
      const bool came_too_late = m == victim && after >= end;
      ASSERT_TRUE(sites.over(m) || came_too_late) << "seed " << seed << ", site " << m;
      if (came_too_late) continue;
      ASSERT_EQ(sites.step(m), end) << "seed " << seed << ", site " << m;
      const auto later = [&](const std::set<std::int64_t>& steps) {
        return std::set<std::int64_t>(steps.upper_bound(after), steps.end());
      };
      ASSERT_EQ(later(sites.checkpoints(m)), later(sites.checkpoints(0)))
          << "seed " << seed << ", site " << m;
    }
    joined += after < end ? 1 : 0;
    with_more += after < end && sites.checkpoints(0).upper_bound(after) !=
                                    std::prev(sites.checkpoints(0).end())
                     ? 1
                     : 0;
  }
  EXPECT_GT(joined, 1000);
  EXPECT_GT(with_more, 300);
}

TEST(SiteAgreement, WhoeverWantsToLeaveDoesSoAfterAStepThatAllKnow) {
  std::size_t left = 0;
  int two_left = 0;
  std::size_t refused = 0;
  for (std::uint64_t seed = 0; seed < 4000; ++seed) {
    const int members = 2 + static_cast<int>(seed % 4);
    Sites sites(members, seed, 2);
    const std::size_t first_at = sites.draw(60);
    const std::size_t second_at = sites.draw(60);
    const std::size_t checkpoint_at = sites.draw(150);
    const std::size_t death_at = seed % 3 == 0 ? sites.draw(100) : 10000;
    const int victim = 1 + static_cast<int>(sites.draw(static_cast<std::size_t>(members) - 1));
    for (std::size_t events = 0; sites.advance(); ++events) {
      const int m = static_cast<int>(sites.draw(static_cast<std::size_t>(members)));
      const bool leave = events == first_at || events == second_at;
      if (leave && !sites.dead(m)) sites.wish(m, Purpose::kLeave);
      if (events == checkpoint_at) sites.wish(0, Purpose::kCheckpoint);
      if (events == death_at && !sites.dead(victim)) sites.kill(victim);
      ASSERT_LT(events, 10000U) << "seed " << seed;
    }
    int there = 0, stay = 0;
    for (int m = 0; m < members; ++m) stay += sites.dead(m) ? 0 : 1;
    for (int m = 0; m < members; ++m) {
      const auto leaves = sites.left_after().find(m);
      if (leaves != sites.left_after().end() && m != victim) {
        ASSERT_EQ(sites.step(m), leaves->second) << "seed " << seed << ", site " << m;
        ASSERT_TRUE(sites.checkpoints(m).contains(leaves->second)) << "seed " << seed;
      }
      if (sites.dead(m)) continue;
      ++there;
      if (stay < 2) {
        ASSERT_TRUE(sites.over(m) || sites.waits(m)) << "seed " << seed;
        continue;
      }
      ASSERT_TRUE(sites.over(m)) << "seed " << seed << ", site " << m << " waits for ever";
      ASSERT_EQ(sites.step(m), kSteps) << "seed " << seed << ", site " << m;
      ASSERT_EQ(sites.checkpoints(m), sites.checkpoints(0)) << "seed " << seed << ", site " << m;
    }
    ASSERT_FALSE(sites.left_after().contains(0)) << "seed " << seed;
    ASSERT_TRUE(there >= 2 || death_at < 10000) << "seed " << seed;
    left += sites.left_after().size();
    two_left += sites.left_after().size() == 2 ? 1 : 0;
    refused += sites.refused().size();
  }
  EXPECT_GT(left, 2000U);
  EXPECT_GT(two_left, 300);
  EXPECT_GT(refused, 1000U);
}

TEST(SiteAgreement, AStepForAJoinerMayBeAgreedOnAgain) {
  SiteAgreement alone(WorkerId(0), 1, kSteps);
  for (const std::int64_t begun : {7, 20}) {
    ASSERT_TRUE(alone.begin(StepIndex(begun)));
    NotesOut out;
    alone.wish(Purpose::kJoin, out);
    EXPECT_EQ(alone.take_join(), StepIndex(begun + 1));
    EXPECT_EQ(alone.take_join(), std::nullopt);
    EXPECT_TRUE(alone.change_after(StepIndex(begun + 1)));
  }
  EXPECT_FALSE(alone.stop().has_value());
}

TEST(SiteAgreement, OneSiteAgreesAtOnce) {
  SiteAgreement alone(WorkerId(0), 1, kSteps);
  ASSERT_TRUE(alone.begin(StepIndex(7)));
  NotesOut out;
  alone.wish(Purpose::kRequeue, out);
  EXPECT_TRUE(out.empty());
  ASSERT_TRUE(alone.stop().has_value());
  EXPECT_EQ(alone.stop()->first, 8);
  EXPECT_EQ(alone.stop()->second, Purpose::kRequeue);
}

TEST(SiteAgreement, AWishBeforeTheFirstStepAfterAResumeIsForThatStep) {
  SiteAgreement alone(WorkerId(0), 1, kSteps, 30);
  NotesOut out;
  alone.wish(Purpose::kRequeue, out);
  ASSERT_TRUE(alone.stop().has_value());
  EXPECT_EQ(alone.stop()->first, 31);
  EXPECT_TRUE(alone.begin(StepIndex(31)));
}

TEST(SiteAgreement, AWishInTheLastStepsLetsTheRunEndByItself) {
  SiteAgreement alone(WorkerId(0), 1, kSteps);
  ASSERT_TRUE(alone.begin(StepIndex(kSteps)));
  NotesOut out;
  alone.wish(Purpose::kInterrupt, out);
  EXPECT_FALSE(alone.stop().has_value());
}

}  // namespace
}  // namespace isthmus::app::this_file
