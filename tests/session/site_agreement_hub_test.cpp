// SPDX-License-Identifier: Apache-2.0
// Sites that agree on steps by a hub, which may die with a question under way.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <vector>

#include "session/site/site_agreement.h"

namespace isthmus::app::this_file {
namespace {

constexpr std::int64_t kSteps = 60;

/// Two sites and a hub, Rank(2); notes are handed over by the test.
struct UnderAHub {
  SiteAgreement a{WorkerId(0), 2, kSteps, 0, 1, WorkerId(2)};
  SiteAgreement b{WorkerId(1), 2, kSteps, 0, 1, WorkerId(2)};
  std::unique_ptr<SiteAgreement> hub = next_hub({});

  static std::unique_ptr<SiteAgreement> next_hub(const std::vector<AgreedNote>& agreed) {
    auto hub = std::make_unique<SiteAgreement>(WorkerId(2), 2, kSteps, 0, 1, WorkerId(2));
    hub->resume(agreed);
    return hub;
  }
  /// What `from` has to say reaches its receivers; what they answer is appended.
  void deliver(WorkerId from, const NotesOut& notes, std::map<int, NotesOut>& answers) {
    for (const auto& [to, note] : notes) {
      SiteAgreement& at = to == WorkerId(0) ? a : to == WorkerId(1) ? b : *hub;
      at.receive(from, note, answers[to.value()]);
    }
  }
};

TEST(SiteAgreement, AHubAsksAndTakesNoSteps) {
  UnderAHub run;
  for (int t = 1; t <= 4; ++t) EXPECT_TRUE(run.a.begin(StepIndex(t)));
  std::map<int, NotesOut> said;
  NotesOut wish;
  run.b.wish(Purpose::kInterrupt, wish);
  run.deliver(WorkerId(1), wish, said);  // WISH to the hub, ASK comes
  std::map<int, NotesOut> answers;
  run.deliver(WorkerId(2), said[2], answers);
  EXPECT_FALSE(run.a.begin(StepIndex(5)));  // held until it is told
  std::map<int, NotesOut> agreed;
  run.deliver(WorkerId(0), answers[0], agreed);
  run.deliver(WorkerId(1), answers[1], agreed);
  std::map<int, NotesOut> nothing;
  run.deliver(WorkerId(2), agreed[2], nothing);
  ASSERT_TRUE(run.a.stop().has_value());
  EXPECT_EQ(run.a.stop()->first, 5);
  EXPECT_EQ(run.b.stop(), run.a.stop());
}

// EPOCH has come, AGREED never will.
TEST(SiteAgreement, AllMeetWhereASiteJoinsThoughTheHubDiesThen) {
  UnderAHub run;
  NotesOut out;
  run.a.leave(WorkerId(1), out);
  EXPECT_FALSE(run.a.change_after(StepIndex(9)));
  run.a.join(WorkerId(1), StepIndex(9), out);
  EXPECT_TRUE(run.a.change_after(StepIndex(9)));
  EXPECT_FALSE(run.a.change_after(StepIndex(8)));
}

TEST(SiteAgreement, TheOnlyRelayDoesNotLeaveWhomNobodyElseReaches) {
  const auto refusal = [](std::vector<WorkerId> relays, std::vector<WorkerId> hidden) {
    UnderAHub run;
    run.hub->set_relays(std::move(relays), std::move(hidden));
    std::map<int, NotesOut> said, answers;
    NotesOut wish;
    run.b.wish(Purpose::kLeave, wish);
    run.deliver(WorkerId(1), wish, said);
    run.deliver(WorkerId(2), said[2], answers);
    return run.b.take_refusal().has_value();
  };
  EXPECT_TRUE(refusal({WorkerId(1)}, {WorkerId(0)}));
  EXPECT_FALSE(refusal({WorkerId(0), WorkerId(1)}, {WorkerId(0)}));
  EXPECT_FALSE(refusal({WorkerId(1)}, {}));
  EXPECT_FALSE(refusal({WorkerId(0)}, {WorkerId(1)}));
}

TEST(SiteAgreement, WhatADeadHubHasAskedIsVoidAndWhatItAgreedStands) {
  UnderAHub run;
  std::map<int, NotesOut> said, answers;
  NotesOut wish;
  run.b.wish(Purpose::kInterrupt, wish);
  run.deliver(WorkerId(1), wish, said);
  run.deliver(WorkerId(2), said[2], answers);
  EXPECT_FALSE(run.a.begin(StepIndex(1)));
  // The hub dies before an answer comes; its next process knows of nothing.
  run.hub = UnderAHub::next_hub({});
  NotesOut of_a, of_b;
  run.a.hub_back(of_a);
  run.b.hub_back(of_b);
  EXPECT_TRUE(run.a.begin(StepIndex(1)));
  EXPECT_TRUE(of_a.empty());
  ASSERT_EQ(of_b.size(), 1u);  // still wants to stop
  EXPECT_EQ(std::get<WishNote>(of_b[0].second).purpose, Purpose::kInterrupt);
  // This one agrees on step 9, tells a alone and dies: the next one tells both.
  const AgreedNote agreed{.number = 1, .purpose = Purpose::kCheckpoint, .step = StepIndex(9)};
  NotesOut none;
  run.a.receive(WorkerId(2), agreed, none);
  run.hub = UnderAHub::next_hub({agreed});
  for (SiteAgreement* site : {&run.a, &run.b}) {
    site->receive(WorkerId(2), agreed, none);
    EXPECT_TRUE(site->checkpoint_after(StepIndex(9)));
  }
  std::map<int, NotesOut> asked;
  NotesOut another;
  run.a.wish(Purpose::kCheckpoint, another);
  run.deliver(WorkerId(0), another, asked);
  EXPECT_EQ(std::get<AskNote>(asked[2].at(0).second).number, 2);  // no number is used twice
}

TEST(SiteAgreement, AQuestionFromBeforeAllAreBackIsAnsweredByAll) {
  UnderAHub run;
  NotesOut wish;
  run.a.wish(Purpose::kInterrupt, wish);
  std::map<int, NotesOut> asked, answers;
  run.deliver(WorkerId(0), wish, asked);
  NotesOut to_a = asked[2];  // b has not found the hub's process yet
  std::erase_if(to_a, [](const auto& each) { return each.first != WorkerId(0); });
  run.deliver(WorkerId(2), to_a, answers);
  std::map<int, NotesOut> agreed, nothing;
  run.deliver(WorkerId(0), answers[0], agreed);
  EXPECT_TRUE(agreed[2].empty());
  for (int t = 1; t <= 4; ++t) EXPECT_TRUE(run.b.begin(StepIndex(t)));
  NotesOut of_b, again;
  run.b.hub_back(of_b);
  run.hub->ask_again(WorkerId(1), again);
  run.deliver(WorkerId(2), again, answers);
  EXPECT_FALSE(run.b.begin(StepIndex(5)));
  run.deliver(WorkerId(1), answers[1], agreed);
  run.deliver(WorkerId(2), agreed[2], nothing);
  ASSERT_TRUE(run.b.stop().has_value());
  EXPECT_EQ(run.b.stop()->first, 5);
  EXPECT_EQ(run.a.stop(), run.b.stop());
}

// Where the others stood before it joined is of no meaning to a site that is to stand elsewhere
// now.
TEST(SiteAgreement, WhereAllStoodBeforeItJoinedConcernsNobodyThoughAHubRepeatsIt) {
  SiteAgreement site(WorkerId(1), 3, kSteps, 0, 3, WorkerId(3));
  site.set_window(4);
  const auto agreed = [&](std::int64_t number, Purpose purpose, std::int64_t step) {
    NotesOut none;
    site.receive(WorkerId(3), AgreedNote{number, purpose, StepIndex(step)}, none);
  };
  NotesOut none;
  site.join(WorkerId(1), StepIndex(20), none);
  agreed(0, Purpose::kJoin, 20);
  site.leave(WorkerId(2), none);
  agreed(5, Purpose::kWait, 30);
  for (std::int64_t t = 21; t <= 25; ++t) EXPECT_TRUE(site.begin(StepIndex(t))) << t;
  for (const std::int64_t step : {10, 20}) agreed(step / 10, Purpose::kWait, step);
  for (std::int64_t t = 26; t <= 30; ++t) EXPECT_TRUE(site.begin(StepIndex(t))) << t;
  EXPECT_FALSE(site.begin(StepIndex(31)));
}

TEST(SiteAgreement, AJoinThatWasToldOfTwiceIsOne) {
  UnderAHub run;
  const AgreedNote agreed{.number = 7, .purpose = Purpose::kJoin, .step = StepIndex(9)};
  NotesOut none;
  run.a.receive(WorkerId(2), agreed, none);
  EXPECT_EQ(run.a.take_join(), StepIndex(9));
  run.a.receive(WorkerId(2), agreed, none);
  EXPECT_FALSE(run.a.take_join().has_value());
}

}  // namespace
}  // namespace isthmus::app::this_file
