// SPDX-License-Identifier: Apache-2.0
// Boards of several sites in one process, each asked by a task of its own what becomes of outer
// states that differ. Notes arrive at once.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/base/system_runtime.h"
#include "isthmus/errors.h"
#include "session/run/divergence_rule.h"
#include "session/site/site_step_coordinator.h"

namespace isthmus::app::this_file {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr StepIndex kStep(5);
const std::vector<std::string> kNames = {"east", "west", "north"};

Digest128 digest(std::uint8_t of) {
  Digest128 made;
  made.bytes[0] = of;
  return made;
}

class Events final : public RunLog {
 public:
  void step(StepIndex, const std::vector<StepPost>&) override {}
  void eval(const EvalResult&) override {}
  void event(const RunEvent& event) override {
    if (event.kind == RunEvent::Kind::kHealed) {
      told.push_back(fmt::format("{} after {}", event.who.value(), event.step.value()));
      why = event.why;
    }
  }
  std::vector<std::string> told;
  std::string why;
};

/// What a site holds, and what its replay comes to; without one: why.
struct Site {
  int holds = 0;
  std::optional<int> replay = 0;
};

class OuterSettlingTest : public testing::Test {
 protected:
  explicit OuterSettlingTest() {
    for (int m = 0; m < 3; ++m) start(m, {});
  }
  void start(int m, SiteStepCoordinator::Options options) {
    options.wishes = &wishes_;
    options.self = WorkerId(m);
    options.sites = kNames;
    options.total_steps = 100;
    options.elastic = true;
    options.about = fmt::format("build {} on processor {}", m, m);
    options.send = [this, m](WorkerId to, const Note& note) {
      const std::lock_guard lock(links_);
      if (!alone_) board(to.value()).receive(WorkerId(m), note);
    };
    logs_[m] = std::make_unique<Events>();
    boards_[m] = std::make_unique<SiteStepCoordinator>(std::move(options), runtime_, *logs_[m]);
  }
  [[nodiscard]] SiteStepCoordinator& board(int m) { return *boards_[m]; }
  [[nodiscard]] Events& log(int m) { return *logs_[m]; }

  /// Site m lays down its state after the step; what ends its run, if something does.
  void settle(int m, const Site& site) {
    const auto place = static_cast<std::size_t>(m);
    try {
      if (board(m).outer_agrees(kStep, digest(static_cast<std::uint8_t>(site.holds)))) {
        settled_[place] = "alike";
        return;
      }
      OuterReplay replay;
      if (site.replay) {
        replay.digest = digest(static_cast<std::uint8_t>(*site.replay)).hex();
      } else {
        replay.why = fmt::format("no room at {}", m);
      }
      board(m).settle_outer(kStep, replay);
      settled_[place] = "settled";
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::kPeer);
      EXPECT_EQ(dynamic_cast<const PeerError*>(&error), nullptr) << "it would try to come back";
      settled_[place] = error.what();
    }
  }
  void settle_all(const std::vector<Site>& sites) {
    std::vector<std::unique_ptr<Task>> tasks;
    for (int m = 0; m < static_cast<int>(sites.size()); ++m) {
      tasks.push_back(runtime_.spawn(fmt::format("site {}", m), [this, m, &sites] {
        settle(m, sites[static_cast<std::size_t>(m)]);
      }));
    }
    tasks.clear();  // which waits for them
  }
  /// East and north settle while west dies.
  void settle_without_west(const Site& east, const Site& north) {
    const auto first = runtime_.spawn("east", [this, &east] { settle(0, east); });
    const auto second = runtime_.spawn("north", [this, &north] { settle(2, north); });
    lose(1);
  }
  void lose(int who) {
    std::vector<bool> live(3, true);
    live[static_cast<std::size_t>(who)] = false;
    for (int m = 0; m < 3; ++m) {
      if (m == who) continue;
      const std::lock_guard lock(links_);
      board(m).epoch({.number = 1, .live = live, .who = WorkerId(who), .why = "silent"});
    }
  }

  SystemRuntime runtime_;
  Wishes wishes_;
  std::recursive_mutex links_;  // what one hears of a loss it passes on
  bool alone_ = false;          // what is sent reaches nobody
  std::unique_ptr<Events> logs_[3];
  std::unique_ptr<SiteStepCoordinator> boards_[3];
  std::vector<std::string> settled_{3};
};

TEST_F(OuterSettlingTest, AlikeIsNothingToTell) {
  settle_all({{7}, {7}, {7}});
  EXPECT_THAT(settled_, ElementsAre("alike", "alike", "alike"));
  EXPECT_THAT(log(0).told, IsEmpty());
}

TEST_F(OuterSettlingTest, TheOneWhoseReplayIsNotWhatItHeldIsHealedAndAllAreTold) {
  settle_all({{7, 7}, {8, 7}, {7, 7}});
  EXPECT_THAT(settled_, ElementsAre("settled", "settled", "settled"));
  for (int m = 0; m < 3; ++m) {
    EXPECT_THAT(log(m).told, ElementsAre("1 after 5")) << m;
    EXPECT_THAT(log(m).why, HasSubstr("build 1 on processor 1 is in doubt"));
    EXPECT_NO_THROW(board(m).check());
  }
}

// Two of three hold the same, and are wrong: they have not outvoted the third.
TEST_F(OuterSettlingTest, NobodyIsOutvoted) {
  settle_all({{8, 7}, {8, 7}, {7, 7}});
  EXPECT_THAT(settled_, ElementsAre("settled", "settled", "settled"));
  EXPECT_THAT(log(2).told, ElementsAre("0 after 5", "1 after 5"));
}

TEST_F(OuterSettlingTest, ReplaysThatDifferEndTheRunNamingBuildsAndProcessors) {
  settle_all({{7, 7}, {8, 8}, {7, 7}});
  for (const std::string& each : settled_) {
    EXPECT_THAT(each, AllOf(HasSubstr("after step 5"), HasSubstr("so do the replays"),
                            HasSubstr("east (build 0 on processor 0)"),
                            HasSubstr("west (build 1 on processor 1)")));
  }
  EXPECT_THAT(log(0).told, IsEmpty());
}

TEST_F(OuterSettlingTest, WhoIsWrongAndCannotReplayEndsTheRun) {
  settle_all({{7, 7}, {8, std::nullopt}, {7, 7}});
  for (const std::string& each : settled_) {
    EXPECT_THAT(each, AllOf(HasSubstr("west"), HasSubstr("no room at 1"))) << each;
  }
}

TEST_F(OuterSettlingTest, WhoCannotReplayAndHoldsWhatOthersReplaysComeToStays) {
  settle_all({{7, std::nullopt}, {8, 7}, {7, 7}});
  EXPECT_THAT(settled_, ElementsAre("settled", "settled", "settled"));
  EXPECT_THAT(log(0).told, ElementsAre("1 after 5"));
}

TEST_F(OuterSettlingTest, WithoutAnyReplayTheRunEnds) {
  settle_all({{7, std::nullopt}, {8, std::nullopt}, {7, std::nullopt}});
  for (const std::string& each : settled_) EXPECT_THAT(each, HasSubstr("no room at 0"));
}

// Nobody waits for its replay; who is left judges by what it has held all the same.
TEST_F(OuterSettlingTest, WhoHeldSomethingElseAndDiesIsNotWaitedFor) {
  board(1).tell_outer(kStep, digest(8));
  settle_without_west({7, 7}, {7, 7});
  EXPECT_THAT(settled_, ElementsAre("settled", "", "settled"));
  EXPECT_THAT(log(0).told, IsEmpty());
}

TEST_F(OuterSettlingTest, WhoIsLeftAndWrongIsHealedThoughAllWhoAreLeftHoldTheSame) {
  board(1).tell_outer(kStep, digest(7));
  settle_without_west({8, 7}, {8, 7});
  EXPECT_THAT(settled_, ElementsAre("settled", "", "settled"));
  for (const int m : {0, 2}) EXPECT_THAT(log(m).told, ElementsAre("0 after 5", "2 after 5"));
}

TEST_F(OuterSettlingTest, WithoutAReplayOfThoseWhoAreLeftTheRunEnds) {
  board(1).tell_outer(kStep, digest(7));
  settle_without_west({8, std::nullopt}, {8, std::nullopt});
  for (const int m : {0, 2}) EXPECT_THAT(settled_[m], HasSubstr("no room at 0")) << m;
}

// North has not heard what west held: east passes it on.
TEST_F(OuterSettlingTest, WhatOneHasHeardOfALostSiteAllWhoAreLeftJudgeBy) {
  alone_ = true;
  board(1).tell_outer(kStep, digest(7));
  alone_ = false;
  board(0).receive(WorkerId(1), OuterNote{.step = kStep, .digest = digest(7).hex(), .about = "it"});
  settle_without_west({8, 8}, {8, 7});
  EXPECT_THAT(settled_, Not(testing::Contains("alike")));
  for (const int m : {0, 2}) EXPECT_THAT(settled_[m], HasSubstr("so do the replays")) << m;
}

TEST_F(OuterSettlingTest, AWordOfASiteThatThereIsNotIsRefused) {
  GoneNote note{.epoch = 1, .words = {{.epoch = 1, .site = 3, .note = {}}}};
  EXPECT_THROW(board(0).receive(WorkerId(1), note), PeerError);
}

TEST_F(OuterSettlingTest, WhatSitesStartFromIsNotSettled) {
  for (int m = 0; m < 3; ++m) start(m, {.resumed_after = 5});
  board(0).tell_outer(kStep, digest(7));
  board(1).tell_outer(kStep, digest(8));
  for (int m = 0; m < 3; ++m) EXPECT_THROW(board(m).check(), Error) << m;
}

}  // namespace
}  // namespace isthmus::app::this_file
