// SPDX-License-Identifier: Apache-2.0
#include "session/run/local_step_coordinator.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "core/base/system_runtime.h"
#include "isthmus/errors.h"

namespace isthmus::app::this_file {
namespace {

using testing::ElementsAre;

/// Keeps what the board hands on.
class RecordingLog final : public RunLog {
 public:
  void step(StepIndex t, const std::vector<StepPost>& posts) override {
    steps.push_back(t.value());
    losses.clear();
    ranks.clear();
    for (const StepPost& post : posts) {
      losses.push_back(post.report.inner.loss);
      ranks.push_back(post.rank.value());
    }
    told.push_back(fmt::format("step {}", t.value()));
  }
  void eval(const EvalResult& result) override {
    evals.push_back(result.loss);
    told.push_back(fmt::format("eval {}", result.step.value()));
  }
  void event(const RunEvent& event) override {
    events.push_back(event);
    told.push_back(fmt::format("event {}", event.step.value()));
  }

  std::vector<std::int64_t> steps;
  std::vector<double> losses;  // of the last step
  std::vector<int> ranks;
  std::vector<double> evals;
  std::vector<RunEvent> events;
  std::vector<std::string> told;  // all of it, in order
};

StepPost post_with_loss(double loss) {
  StepPost post;
  post.report.inner = {.loss = loss, .grad_norm = 1, .tokens = 1};
  return post;
}

class LocalStepCoordinatorTest : public testing::Test {
 protected:
  LocalStepCoordinatorTest() { board_.attach(runtime_); }
  SystemRuntime runtime_;
  RecordingLog log_;
  Wishes wishes_;
  LocalStepCoordinator board_{2, 10, log_, wishes_};
};

TEST_F(LocalStepCoordinatorTest, HandsOnAStepOnceAllWorkersHavePostedInRankOrder) {
  board_.post_step(WorkerId(1), StepIndex(1), post_with_loss(11));
  board_.post_step(WorkerId(1), StepIndex(2), post_with_loss(12));
  EXPECT_THAT(log_.steps, ElementsAre());
  board_.post_step(WorkerId(0), StepIndex(1), post_with_loss(1));
  EXPECT_THAT(log_.steps, ElementsAre(1));
  EXPECT_THAT(log_.losses, ElementsAre(1, 11));
  board_.post_step(WorkerId(0), StepIndex(2), post_with_loss(2));
  EXPECT_THAT(log_.steps, ElementsAre(1, 2));
}

TEST_F(LocalStepCoordinatorTest, WeighsEvaluationBatchesByTheirTargets) {
  board_.post_eval(WorkerId(1), StepIndex(5),
                   {.parts = {{.batch = 1, .loss_sum = 30, .tokens = 10}}, .batches = 2});
  EXPECT_THAT(log_.evals, ElementsAre());
  board_.post_eval(WorkerId(0), StepIndex(5),
                   {.parts = {{.batch = 0, .loss_sum = 30, .tokens = 30}}, .batches = 2});
  EXPECT_THAT(log_.evals, ElementsAre(1.5));
}

TEST_F(LocalStepCoordinatorTest, AgreesOnACheckpointStepThatNobodyHasFinished) {
  EXPECT_TRUE(board_.begin_step(WorkerId(0), StepIndex(1), false));
  EXPECT_TRUE(board_.begin_step(WorkerId(1), StepIndex(1), false));
  EXPECT_TRUE(board_.begin_step(WorkerId(1), StepIndex(2), false));
  EXPECT_TRUE(board_.begin_step(WorkerId(1), StepIndex(3), false));
  EXPECT_TRUE(board_.begin_step(WorkerId(0), StepIndex(2),
                                true));  // worker 1 may have finished step 3 already
  EXPECT_FALSE(board_.checkpoint_after(StepIndex(2)));
  EXPECT_FALSE(board_.checkpoint_after(StepIndex(3)));
  EXPECT_TRUE(board_.checkpoint_after(StepIndex(4)));
  EXPECT_TRUE(board_.begin_step(WorkerId(0), StepIndex(5), true));
  EXPECT_TRUE(board_.checkpoint_after(StepIndex(4))) << "worker 1 may still be at step 4";
  EXPECT_TRUE(board_.checkpoint_after(StepIndex(5)));
  EXPECT_EQ(board_.stop_after(StepIndex(4)), StopWish::kNone);
}

/// Three workers; worker m's loss at step t is 10 m + t.
class ElasticBoardTest : public testing::Test {
 protected:
  ElasticBoardTest() { board_.attach(runtime_); }
  void post(int m, std::int64_t t) {
    board_.post_step(WorkerId(m), StepIndex(t), post_with_loss(10.0 * m + static_cast<double>(t)));
  }
  /// Of four batches; each has the loss of its place.
  void evaluate(int m, std::int64_t t, std::initializer_list<int> batches) {
    board_.post_eval(WorkerId(m), StepIndex(t), {.parts = parts(batches), .batches = 4});
  }
  static std::vector<EvalPart> parts(const std::vector<int>& batches) {
    std::vector<EvalPart> parts;
    for (const int k : batches) {
      parts.push_back({.batch = k, .loss_sum = static_cast<double>(k), .tokens = 1});
    }
    return parts;
  }
  static constexpr double kWholeLoss = (0 + 1 + 2 + 3) / 4.0;

  SystemRuntime runtime_;
  RecordingLog log_;
  Wishes wishes_;
  LocalStepCoordinator board_{3, 10, log_, wishes_};
};

TEST_F(ElasticBoardTest, WhoIsGoneIsNotWaitedForAndWhatItPostedCounts) {
  post(0, 1);
  post(1, 1);  // worker 1 is a step ahead when it dies
  post(1, 2);
  post(2, 1);
  EXPECT_THAT(log_.steps, ElementsAre(1));
  post(0, 2);
  post(0, 3);
  post(2, 2);
  EXPECT_THAT(log_.steps, ElementsAre(1, 2));
  EXPECT_THAT(log_.losses, ElementsAre(2, 12, 22));
  post(2, 3);
  EXPECT_THAT(log_.steps, ElementsAre(1, 2));
  board_.leave(WorkerId(1), "silent");
  EXPECT_THAT(log_.steps, ElementsAre(1, 2, 3));
  EXPECT_THAT(log_.losses, ElementsAre(3, 23));
  EXPECT_THAT(log_.ranks, ElementsAre(0, 2));
  ASSERT_EQ(log_.events.size(), 1U);
  EXPECT_EQ(log_.events[0].who, WorkerId(1));
  EXPECT_EQ(log_.events[0].step, StepIndex(2));
  EXPECT_EQ(log_.events[0].present, 2);
  EXPECT_EQ(log_.events[0].why, "silent");
  post(1, 4);  // from one that does not know yet
  post(0, 4);
  EXPECT_THAT(board_.present(StepIndex(4)), ElementsAre(true, false, true));
  post(2, 4);
  EXPECT_THAT(log_.ranks, ElementsAre(0, 2));
}

TEST_F(ElasticBoardTest, OneThatJoinsIsWaitedForFromItsStepOn) {
  board_.leave(WorkerId(2), "gone");
  post(0, 1);
  post(1, 1);
  board_.join(WorkerId(2), StepIndex(2));
  EXPECT_THAT(board_.present(StepIndex(2)), ElementsAre(true, true, false));
  EXPECT_THAT(board_.present(StepIndex(3)), ElementsAre(true, true, true));
  post(2, 2);  // too early: not of the run
  post(2, 3);
  post(0, 2);
  post(0, 3);
  post(1, 2);
  EXPECT_THAT(log_.ranks, ElementsAre(0, 1));
  post(1, 3);
  EXPECT_THAT(log_.ranks, ElementsAre(0, 1, 2));
  EXPECT_THAT(log_.told, ElementsAre("event 0", "step 1", "step 2", "event 2", "step 3"));
  EXPECT_EQ(log_.events.back().kind, RunEvent::Kind::kJoined);
  EXPECT_EQ(log_.events.back().present, 3);
}

TEST_F(ElasticBoardTest, OneThatLeavesIsWaitedForUpToItsStep) {
  board_.leave_after(WorkerId(2), StepIndex(2), "asked to");
  EXPECT_THAT(board_.present(StepIndex(2)), ElementsAre(true, true, true));
  EXPECT_THAT(board_.present(StepIndex(3)), ElementsAre(true, true, false));
  for (const int rank : {0, 1}) {
    for (const int t : {1, 2, 3}) post(rank, t);
  }
  EXPECT_THAT(log_.steps, ElementsAre());
  post(2, 1);
  post(2, 2);
  EXPECT_THAT(log_.told, ElementsAre("step 1", "step 2", "event 2", "step 3"));
  EXPECT_EQ(log_.events.back().kind, RunEvent::Kind::kLeft);
  EXPECT_EQ(log_.events.back().present, 2);
  board_.leave(WorkerId(2), "its process has ended");
  EXPECT_EQ(log_.events.size(), 1U) << "that it has left is known";
  board_.join(WorkerId(2), StepIndex(4));
  EXPECT_THAT(board_.present(StepIndex(5)), ElementsAre(true, true, true));
}

TEST_F(ElasticBoardTest, OneThatDiesBeforeItsLastStepHasLeftThen) {
  board_.leave_after(WorkerId(2), StepIndex(2), "asked to");
  for (int m = 0; m < 3; ++m) post(m, 1);
  post(0, 2);
  post(1, 2);
  board_.leave(WorkerId(2), "gone");
  EXPECT_THAT(log_.told, ElementsAre("step 1", "event 1", "step 2"));
}

TEST_F(ElasticBoardTest, WhoLeavesWritesNoLinesOfLaterSteps) {
  post(0, 1);
  post(1, 1);
  post(1, 2);
  board_.end_after(StepIndex(1));
  post(1, 3);
  post(2, 1);
  post(0, 2);
  post(2, 2);
  EXPECT_THAT(log_.steps, ElementsAre(1));
}

TEST_F(ElasticBoardTest, TheJoinersOwnLinesBeginWhereItJoins) {
  board_.stand_by();
  post(2, 4);
  EXPECT_THAT(board_.present(StepIndex(4)), ElementsAre(false, false, false));
  board_.start(WorkerId(2), {true, false, true}, StepIndex(6));
  EXPECT_THAT(log_.told, ElementsAre("event 6"));
  post(0, 6);
  post(0, 7);
  post(2, 7);
  EXPECT_THAT(log_.told, ElementsAre("event 6", "step 7"));
  EXPECT_THAT(log_.ranks, ElementsAre(0, 2));
  EXPECT_TRUE(board_.await_lines(StepIndex(7)));
}

TEST_F(ElasticBoardTest, AnEvaluationThatLacksBatchesHasNoLoss) {
  for (int m = 0; m < 3; ++m) post(m, 5);
  evaluate(0, 5, {0, 3});
  evaluate(1, 5, {1});
  board_.leave(WorkerId(2), "gone");
  ASSERT_EQ(log_.events.size(), 2U);
  EXPECT_EQ(log_.events[1].kind, RunEvent::Kind::kEvalIncomplete);
  EXPECT_EQ(log_.events[1].step, StepIndex(5));
  EXPECT_EQ(log_.events[1].missing, 1);
  EXPECT_THAT(log_.evals, ElementsAre());
  post(0, 6);
  post(1, 6);  // the run goes on
  EXPECT_THAT(log_.steps, ElementsAre(5, 6));
}

TEST_F(ElasticBoardTest, AShareSentBeforeDyingCompletesTheEvaluation) {
  for (int m = 0; m < 3; ++m) post(m, 5);
  evaluate(2, 5, {2});
  board_.leave(WorkerId(2), "gone");
  evaluate(1, 5, {1, 3});
  EXPECT_THAT(log_.evals, ElementsAre());
  evaluate(0, 5, {0, 2});  // it knew already: batch 2 twice counts once
  EXPECT_THAT(log_.evals, ElementsAre(kWholeLoss));
}

TEST_F(ElasticBoardTest, TheLastEvaluationIsMadeWhole) {
  for (int m = 0; m < 3; ++m) post(m, 10);
  evaluate(0, 10, {0, 3});
  evaluate(1, 10, {1});
  const auto waiting = runtime_.spawn("worker", [&] {
    const auto missing = board_.await_missing(StepIndex(10));
    ASSERT_TRUE(missing.has_value());
    EXPECT_THAT(*missing, ElementsAre(2));
    board_.complete_eval(StepIndex(10), parts({2}));
  });
  board_.leave(WorkerId(2), "gone");
  waiting->join();
  EXPECT_TRUE(board_.await_lines(StepIndex(10)));
  EXPECT_THAT(log_.evals, ElementsAre(kWholeLoss));
  const auto complete = board_.await_missing(StepIndex(10));
  ASSERT_TRUE(complete.has_value());
  EXPECT_THAT(*complete, ElementsAre());
}

TEST_F(ElasticBoardTest, NobodyWaitsOnceItIsAbandoned) {
  evaluate(0, 10, {0, 3});
  board_.abandon();
  EXPECT_FALSE(board_.await_missing(StepIndex(10)).has_value());
}

}  // namespace
}  // namespace isthmus::app::this_file
