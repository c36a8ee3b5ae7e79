// SPDX-License-Identifier: Apache-2.0
#include "app/run_board.h"

#include <gmock/gmock.h>

#include <vector>

#include "core/system_runtime.h"
#include "isthmus/errors.h"

namespace isthmus::app {
namespace {

using testing::ElementsAre;

/// Keeps what the board hands on.
class RecordingLog final : public RunLog {
 public:
  void step(StepIndex t, const std::vector<StepPost>& posts) override {
    steps.push_back(t.value());
    losses.clear();
    for (const StepPost& post : posts) {
      losses.push_back(post.report.inner.loss);
    }
  }
  void eval(const EvalResult& result) override { evals.push_back(result.loss); }

  std::vector<std::int64_t> steps;
  std::vector<double> losses;
  std::vector<double> evals;
};

StepPost post_with_loss(double loss) {
  StepPost post;
  post.report.inner = {.loss = loss, .grad_norm = 1, .tokens = 1};
  return post;
}

class RunBoardTest : public testing::Test {
 protected:
  RunBoardTest() { board_.attach(runtime_); }
  SystemRuntime runtime_;
  RecordingLog log_;
  RunBoard board_{2, 10, log_};
};

TEST_F(RunBoardTest, HandsOnAStepOnceAllWorkersHavePostedInRankOrder) {
  board_.post_step(Rank(1), StepIndex(1), post_with_loss(11));
  board_.post_step(Rank(1), StepIndex(2), post_with_loss(12));
  EXPECT_THAT(log_.steps, ElementsAre());
  board_.post_step(Rank(0), StepIndex(1), post_with_loss(1));
  EXPECT_THAT(log_.steps, ElementsAre(1));
  EXPECT_THAT(log_.losses, ElementsAre(1, 11));
  board_.post_step(Rank(0), StepIndex(2), post_with_loss(2));
  EXPECT_THAT(log_.steps, ElementsAre(1, 2));
}

TEST_F(RunBoardTest, WeighsEvaluationBatchesByTheirTargets) {
  board_.post_eval(Rank(1), StepIndex(5), {{.batch = 1, .loss_sum = 30, .tokens = 10}}, {});
  EXPECT_THAT(log_.evals, ElementsAre());
  board_.post_eval(Rank(0), StepIndex(5), {{.batch = 0, .loss_sum = 30, .tokens = 30}}, {});
  EXPECT_THAT(log_.evals, ElementsAre(1.5));
}

TEST_F(RunBoardTest, AgreesOnACheckpointStepThatNobodyHasFinished) {
  board_.begin_step(Rank(0), StepIndex(1), false);
  board_.begin_step(Rank(1), StepIndex(1), false);
  board_.begin_step(Rank(1), StepIndex(2), false);
  board_.begin_step(Rank(1), StepIndex(3), false);
  board_.begin_step(Rank(0), StepIndex(2), true);  // worker 1 may have finished step 3 already
  EXPECT_FALSE(board_.checkpoint_after(StepIndex(2)));
  EXPECT_FALSE(board_.checkpoint_after(StepIndex(3)));
  EXPECT_TRUE(board_.checkpoint_after(StepIndex(4)));
  board_.begin_step(Rank(0), StepIndex(5), true);
  EXPECT_TRUE(board_.checkpoint_after(StepIndex(4))) << "worker 1 may still be at step 4";
  EXPECT_TRUE(board_.checkpoint_after(StepIndex(5)));
  EXPECT_EQ(board_.stop_after(StepIndex(4)), StopWish::kNone);
}

}  // namespace
}  // namespace isthmus::app
