// SPDX-License-Identifier: Apache-2.0
// Boards of several sites in one process. Notes go from one to another when the test says so.
#include "session/site/site_step_coordinator.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "core/base/system_runtime.h"
#include "isthmus/errors.h"

namespace isthmus::app::this_file {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::int64_t kSteps = 100;
const std::vector<std::string> kNames = {"east", "west", "north"};

/// What a site's board has handed on: "7: 0 1 2" for step 7 of workers 0, 1 and 2.
class Lines final : public RunLog {
 public:
  void step(StepIndex t, const std::vector<StepPost>& posts) override {
    std::string line = fmt::format("{}:", t.value());
    for (const StepPost& post : posts) line += fmt::format(" {}", post.rank.value());
    told.push_back(line);
  }
  void eval(const EvalResult& result) override {
    told.push_back(fmt::format("eval {}", result.loss));
  }
  void event(const RunEvent& event) override {
    constexpr const char* kWhat[] = {"left", "joined", "incomplete", "came back", "healed"};
    told.push_back(fmt::format("{} {}", kWhat[static_cast<int>(event.kind)], event.who.value()));
  }
  std::vector<std::string> told;
};

class SiteStepCoordinatorTest : public testing::Test {
 protected:
  SiteStepCoordinatorTest() {
    for (int m = 0; m < 3; ++m) start(m, {});
  }
  /// A process of site m, instead of the one before.
  void start(int m, SiteStepCoordinator::Options options) {
    options.wishes = &wishes_;
    options.self = WorkerId(m);
    options.sites = kNames;
    options.total_steps = kSteps;
    options.elastic = true;
    options.about = fmt::format("program {}", m);
    options.send = [this, m](WorkerId to, const Note& note) {
      links_.push_back({m, to.value(), note});
    };
    const auto place = static_cast<std::size_t>(m);
    logs_[place] = std::make_unique<Lines>();
    boards_[place] =
        std::make_unique<SiteStepCoordinator>(std::move(options), runtime_, *logs_[place]);
  }
  [[nodiscard]] SiteStepCoordinator& board(int m) { return *boards_[static_cast<std::size_t>(m)]; }
  [[nodiscard]] const std::vector<std::string>& told(int m) {
    return logs_[static_cast<std::size_t>(m)]->told;
  }
  /// Site m takes step t and tells the others.
  void step(int m, std::int64_t t) {
    ASSERT_TRUE(board(m).begin_step(WorkerId(m), StepIndex(t), false));
    StepPost post;
    post.report.inner = {.loss = 1, .grad_norm = 1, .tokens = 1};
    board(m).post_step(WorkerId(m), StepIndex(t), post);
    board(m).flush();
  }
  void evaluate(int m, std::int64_t t, const std::vector<int>& batches) {
    board(m).post_eval(WorkerId(m), StepIndex(t), {.parts = parts(batches), .batches = 3});
  }
  static std::vector<EvalPart> parts(const std::vector<int>& batches) {
    std::vector<EvalPart> parts;
    for (const int k : batches) {
      parts.push_back({.batch = k, .loss_sum = static_cast<double>(k), .tokens = 1});
    }
    return parts;
  }
  /// All notes on their way arrive.
  void deliver() {
    while (!links_.empty()) {
      const auto [from, to, note] = links_.front();
      links_.pop_front();
      board(to).receive(WorkerId(from), note);
    }
  }
  void lose(int who, const std::vector<int>& at) {
    std::vector<bool> live(3, true);
    live[static_cast<std::size_t>(who)] = false;
    for (const int m : at) {
      board(m).lost(WorkerId(who), "silent");
      board(m).epoch({.number = 1, .live = live, .who = WorkerId(who), .why = "silent"});
    }
  }
  /// What keeps site m's run from going on, for people.
  [[nodiscard]] std::string difference_at(int m) {
    try {
      board(m).check();
    } catch (const Error& error) {
      EXPECT_EQ(dynamic_cast<const PeerError*>(&error), nullptr) << "it would try to come back";
      return error.exit_code() == ExitCode::kPeer ? error.what() : "another exit code";
    }
    return "nothing";
  }
  static Epoch joins(int who, std::int64_t after) {
    return {.number = 2,
            .live = {true, true, true},
            .who = WorkerId(who),
            .joins = true,
            .after = after,
            .why = {}};
  }

  struct Sent {
    int from, to;
    Note note;
  };
  SystemRuntime runtime_;
  Wishes wishes_;
  std::deque<Sent> links_;
  std::unique_ptr<Lines> logs_[3];
  std::unique_ptr<SiteStepCoordinator> boards_[3];
};

TEST_F(SiteStepCoordinatorTest, TheOthersGoOnWithoutTheOneThatIsGone) {
  for (int m = 0; m < 3; ++m) step(m, 1);
  deliver();
  lose(1, {0, 2});
  for (const int m : {0, 2}) step(m, 2);
  deliver();
  EXPECT_THAT(told(0), ElementsAre("1: 0 1 2", "left 1", "2: 0 2"));
  EXPECT_EQ(told(2), told(0));
  EXPECT_NO_THROW(board(0).explain());
  EXPECT_NO_THROW(board(0).await_lines(StepIndex(2)));
}

TEST_F(SiteStepCoordinatorTest, TooFewStandAfterOneStepUntilEnoughAreBack) {
  std::vector<std::string> words;
  for (int m = 0; m < 3; ++m) {
    start(m, {.min_sites = 3, .on_wait = [&words, m](const std::string& word) {
                if (m == 0) words.push_back(word);
              }});
  }
  for (int m = 0; m < 3; ++m) step(m, 1);
  EXPECT_TRUE(board(2).may_begin(StepIndex(2)));
  deliver();
  lose(1, {0, 2});
  deliver();  // site 2 has begun step 2 with that: it is to be step 3 for both
  for (const std::int64_t t : {2, 3}) step(2, t);
  for (const std::int64_t t : {2, 3}) step(0, t);
  deliver();
  for (const int m : {0, 2}) {
    EXPECT_TRUE(board(m).checkpoint_after(StepIndex(3))) << m;
    EXPECT_FALSE(board(m).may_begin(StepIndex(4))) << m;
    for (int k = 0; k < 2; ++k)
      EXPECT_FALSE(board(m).begin_step(WorkerId(m), StepIndex(4), false)) << m;
  }
  const std::string why = "2 of 3 sites are fewer than net.min_sites = 3 (west is gone)";
  EXPECT_THAT(words, ElementsAre(why));
  for (const int m : {0, 2}) board(m).epoch(joins(1, 4));
  deliver();
  for (const int m : {0, 2}) step(m, 4);
  EXPECT_THAT(words, ElementsAre(why, ""));
}

TEST_F(SiteStepCoordinatorTest, TooFewGiveUpAfterAWhileAndDoNotComeBack) {
  bool gives = true;
  for (int m = 0; m < 3; ++m) {
    start(m, {.min_sites = 3, .gather = std::chrono::milliseconds(1), .takes_in = [&gives] {
                return gives;
              }});
  }
  lose(1, {0, 2});
  deliver();
  step(0, 1);
  const auto begin = [&] { (void)board(0).begin_step(WorkerId(0), StepIndex(2), false); };
  for (int k = 0; k < 2; ++k) EXPECT_NO_THROW(begin()) << "somebody comes back";
  gives = false;
  try {
    begin();
    FAIL() << "it waits on";
  } catch (const PeerError&) {
    FAIL() << "it would try to come back";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kPeer);
    EXPECT_THAT(error.what(), HasSubstr("net.gather"));
  }
}

// What is under way may take longer than that to end, and so may the steps in which one of several
// is taken in.
TEST_F(SiteStepCoordinatorTest, TooFewCountTheTimeFromWhenTheyStand) {
  constexpr Duration kGather = std::chrono::milliseconds(1);
  for (int m = 0; m < 3; ++m) start(m, {.min_sites = 3, .gather = kGather, .window = 2});
  const auto pass = [&] {
    const std::unique_ptr<WaitQueue> nothing = runtime_.make_wait_queue();
    (void)nothing->wait([] { return false; }, runtime_.clock().now() + 2 * kGather);
  };
  const auto stands = [&](std::int64_t t) {
    EXPECT_FALSE(board(0).begin_step(WorkerId(0), StepIndex(t), false)) << t;
  };
  lose(1, {0, 2});
  deliver();
  pass();
  step(0, 1);
  stands(2);
  board(0).lost(WorkerId(2), "silent");
  board(0).epoch({.number = 2, .live = {true, false, false}, .who = WorkerId(2), .why = "silent"});
  Epoch back = joins(1, 1);
  back.live = {true, true, false};
  board(0).epoch(back);
  for (const std::int64_t t : {2, 3}) step(0, t);
  pass();
  stands(4);
}

TEST_F(SiteStepCoordinatorTest, WhoJoinsWhereAllStandIsComparedWithThem) {
  Digest128 one;
  Digest128 other = one;
  other.bytes[0] = 1;
  lose(1, {0, 2});
  for (const std::int64_t t : {3, 5}) {
    for (const int m : {0, 2}) board(m).tell_outer(StepIndex(t), one);
    deliver();
  }
  start(1, {.resumed_after = 3, .joining = true});
  for (int m = 0; m < 3; ++m) board(m).epoch(joins(1, 5));
  links_.clear();
  board(1).tell_outer(StepIndex(5), other);
  deliver();
  for (const int m : {0, 2}) EXPECT_THAT(difference_at(m), HasSubstr("west (program 1)")) << m;
}

TEST_F(SiteStepCoordinatorTest, WhatComesFromOneThatIsGoneDoesNoHarm) {
  lose(1, {0, 2});
  step(1, 1);
  evaluate(1, 1, {1});
  step(0, 1);
  step(2, 1);
  deliver();
  EXPECT_THAT(told(0), ElementsAre("left 1", "1: 0 2"));
}

TEST_F(SiteStepCoordinatorTest, NobodyIsToldWhoIsGone) {
  lose(1, {0, 2});
  step(0, 1);
  for (const Sent& sent : links_) EXPECT_NE(sent.to, 1);
  EXPECT_FALSE(links_.empty());
}

TEST_F(SiteStepCoordinatorTest, WithoutTheFirstSiteNobodyGoesOn) {
  board(2).lost(WorkerId(0), "silent");
  try {
    (void)board(2).begin_step(WorkerId(2), StepIndex(1), false);
    FAIL() << "it goes on";
  } catch (const PeerError& error) {
    EXPECT_THAT(error.what(), HasSubstr("site east is gone (silent)"));
  }
}

TEST_F(SiteStepCoordinatorTest, WhoeverIsPutOutIsToldSo) {
  lose(1, {1});
  try {
    board(1).await_lines(StepIndex(1));
    FAIL() << "it goes on";
  } catch (const PeerError& error) {
    EXPECT_THAT(error.what(), HasSubstr("the others go on without this site (silent)"));
  }
}

TEST_F(SiteStepCoordinatorTest, AJoinersStepsCountFromTheAgreedOne) {
  lose(1, {0, 2});
  start(1, {.resumed_after = 3, .joining = true});
  for (std::int64_t t = 1; t <= 4; ++t) {
    for (const int m : {0, 2}) step(m, t);
  }
  step(1, 4);  // again what the others have done: of nobody's interest
  deliver();
  for (const int m : {0, 1}) board(m).epoch(joins(1, 4));
  deliver();  // it is told what was agreed before
  for (const int m : {0, 1}) step(m, 5);
  deliver();  // site 2 hears of the joiner's step before it hears of its joining
  board(2).epoch(joins(1, 4));
  step(2, 5);
  deliver();
  EXPECT_THAT(told(1), ElementsAre("joined 1", "5: 0 1 2"));
  const auto common = {"left 1", "1: 0 2", "2: 0 2", "3: 0 2", "4: 0 2", "joined 1", "5: 0 1 2"};
  EXPECT_THAT(told(0), testing::ElementsAreArray(common));
  EXPECT_THAT(told(2), testing::ElementsAreArray(common));
}

TEST_F(SiteStepCoordinatorTest, AProcessThatWasLostAgainLeavesNothingBehind) {
  lose(1, {0, 2});
  step(1, 1);
  deliver();  // kept: it might come back
  board(0).lost(WorkerId(1), "silent again");
  start(1, {.joining = true});
  for (const int m : {0, 1, 2}) board(m).epoch(joins(1, 0));
  deliver();
  step(1, 1);
  EXPECT_NO_THROW(board(0).receive(WorkerId(1), links_.front().note));
}

TEST_F(SiteStepCoordinatorTest, TheFirstSiteActsOnAJoinersStepBeforeAnybodyMayPassIt) {
  lose(1, {0, 2});
  std::vector<std::string> order;
  start(0, {.on_join = [&](StepIndex t) {
          order.push_back(fmt::format("join after {}, {} notes", t.value(), links_.size()));
          return false;
        }});
  lose(1, {0});
  board(0).wish_join({.purpose = Purpose::kJoin});
  EXPECT_TRUE(order.empty()) << "site 2 has not said how far it has come";
  board(0).wish_join({.purpose = Purpose::kJoin});  // one at a time
  step(2, 1);
  step(2, 2);  // its answer lies one ahead of what it has begun
  links_.pop_back();
  links_.pop_back();  // what it has said of these steps
  deliver();
  EXPECT_THAT(order, ElementsAre("join after 3, 0 notes"));
  for (const int m : {0, 2}) {
    EXPECT_TRUE(board(m).checkpoint_after(StepIndex(3))) << m;
    EXPECT_FALSE(board(m).checkpoint_after(StepIndex(2))) << m;
  }
}

TEST_F(SiteStepCoordinatorTest, OneThatLeavesEndsAfterItsStepAndItsLastWordCounts) {
  for (int m = 0; m < 3; ++m) step(m, 1);
  deliver();
  Epoch leaves{.number = 1,
               .live = {true, true, true},
               .who = WorkerId(2),
               .leaves = true,
               .after = 2,
               .why = "it takes leave"};
  for (int m = 0; m < 3; ++m) board(m).epoch(leaves);
  EXPECT_EQ(board(2).stop_after(StepIndex(1)), StopWish::kNone);
  EXPECT_EQ(board(2).stop_after(StepIndex(2)), StopWish::kRequeue);
  EXPECT_EQ(board(0).stop_after(StepIndex(2)), StopWish::kNone);
  for (int m = 0; m < 3; ++m) step(m, 2);
  const Epoch has_left{.number = 2,
                       .live = {true, true, false},
                       .who = WorkerId(2),
                       .after = 2,
                       .why = "it has taken leave"};
  for (int m = 0; m < 3; ++m) board(m).epoch(has_left);
  step(0, 3);
  step(1, 3);
  deliver();  // what site 2 has told of step 2 among it
  const std::vector<std::string> expected = {"1: 0 1 2", "2: 0 1 2", "left 2", "3: 0 1"};
  EXPECT_EQ(told(0), expected);
  EXPECT_EQ(told(1), expected);
  EXPECT_THAT(told(2), ElementsAre("1: 0 1 2", "2: 0 1 2"));
  board(2).check();
  board(2).explain();  // it has lost nobody
}

TEST_F(SiteStepCoordinatorTest, ALastEvaluationThatLacksAShareIsCompletedAtEverySite) {
  for (int m = 0; m < 3; ++m) start(m, {.resumed_after = kSteps - 1});
  for (int m = 0; m < 3; ++m) step(m, kSteps);
  evaluate(0, kSteps, {0});
  evaluate(2, kSteps, {2});
  deliver();
  lose(1, {0, 2});
  for (const int m : {0, 2}) {
    const auto missing = board(m).await_eval(StepIndex(kSteps));
    EXPECT_THAT(missing, ElementsAre(1));
    board(m).complete_eval(StepIndex(kSteps), parts({1}));
    EXPECT_THAT(told(m), ElementsAre("100: 0 1 2", "left 1", "eval 1")) << m;
    board(m).await_lines(StepIndex(kSteps));
  }
}

TEST_F(SiteStepCoordinatorTest, WhatThoseThereStartFromIsCompared) {
  lose(1, {0, 2});
  Digest128 one;
  Digest128 other = one;
  other.bytes[0] = 1;
  board(0).tell_outer(StepIndex(0), one);
  deliver();
  EXPECT_NO_THROW(board(2).check());
  board(2).tell_outer(StepIndex(0), other);
  deliver();
  const std::string sites = "after step 0 the outer parameters of sites east (program 0) and north";
  for (const int m : {0, 2}) EXPECT_THAT(difference_at(m), HasSubstr(sites)) << m;
}

TEST_F(SiteStepCoordinatorTest, ANoteOutOfTurnIsRefused) {
  PostsNote note;
  note.posts.resize(1);
  note.posts[0].report.step = StepIndex(2);
  EXPECT_THROW(board(0).receive(WorkerId(1), note), PeerError);
}

}  // namespace
}  // namespace isthmus::app::this_file
