// SPDX-License-Identifier: Apache-2.0
// What a joiner is made of: an inner loop that stands still, and a worker that forgets its work.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "outer/parts/idle_inner_loop.h"
#include "outer/toy_loops.h"

namespace isthmus::this_file {
namespace {

using outer::IdleInnerLoop;
using testing_support::Drift;
using testing_support::MemoryState;
using testing_support::QuadraticLoop;

class NoSource final : public ParameterSource {
 public:
  [[nodiscard]] std::span<const float> values(std::size_t) const override { return {}; }
};

TEST(IdleInnerLoop, AnnouncesZeroGradientsAndAppliesWhatIsPutThere) {
  QuadraticLoop model({.tensors = {{0, 2}, {1, 1}}, .lr = 0.5f});
  IdleInnerLoop inner(model);
  const std::vector<float> before = model.all();
  inner.set_idle(true);
  EXPECT_TRUE(inner.train_step(StepIndex(1)).idle);
  EXPECT_TRUE(inner.train_loss(StepIndex(1), {}, NoSource()).idle);
  std::vector<std::size_t> announced;
  const auto note = [&](std::size_t i) {
    announced.push_back(i);
    EXPECT_THAT(inner.gradient(i), ::testing::Each(0.0f));
  };
  EXPECT_TRUE(inner.gradients(StepIndex(1), note).idle);
  EXPECT_EQ(announced, (std::vector<std::size_t>{1, 0}));
  EXPECT_EQ(model.all(), before);
  inner.gradient(1)[0] = 1;
  (void)inner.apply_gradients(StepIndex(1));
  EXPECT_EQ(model.all()[2], before[2] - 0.5f);
  inner.set_idle(false);
  EXPECT_FALSE(inner.train_step(StepIndex(2)).idle);
  EXPECT_NE(model.all()[0], before[0]);
}

/// Workers 0 and 1 fall by 1 and by 2 a step and sync every 4; worker 1 forgets its work after step
/// 6, and goes on from a checkpoint then if asked to. RETURNS: the anchor after 8 and 12 steps.
std::vector<float> forgetful(LostContribution carry, bool resumed) {
  std::vector<float> anchors;
  run_in_process(2, [&](WorkerContext& context) {
    OuterOptions outer;
    outer.H = 4;
    outer.lr = 1.0;
    outer.momentum = 0.0;
    outer.carry = carry;
    Drift inner(static_cast<float>(1 + context.rank.value()), 10);
    auto strategy = make_outer_strategy("diloco", outer, inner, context.exchange);
    for (int t = 1; t <= 12; ++t) {
      (void)strategy->step();
      if (t == 6 && context.rank == WorkerId(1)) {
        strategy->forget_own_work();
        EXPECT_EQ(inner.value(), strategy->values(0)[0]);
        if (resumed) {
          MemoryState state;
          strategy->save(state);
          strategy = make_outer_strategy("diloco", outer, inner, context.exchange);
          strategy->load(state);
        }
      }
      if (t % 4 == 0 && t > 4 && context.rank == WorkerId(0)) {
        anchors.push_back(strategy->values(0)[0]);
      }
    }
  });
  return anchors;
}

// The anchor is at -6 after step 4. Worker 1's steps 7 and 8 are withheld; with carry they come
// along with its first whole window: (4 * 40 + 12 * 60) / 100 = 8.8 after 4 of worker 0's alone.
TEST(ForgottenWork, APartialWindowIsLostByTheRulesThereAre) {
  for (const bool resumed : {false, true}) {
    EXPECT_THAT(forgetful(LostContribution::kCarry, resumed),
                ::testing::ElementsAre(-10.0f, ::testing::FloatEq(-18.8f)));
    for (const auto carry : {LostContribution::kRollback, LostContribution::kStay}) {
      EXPECT_THAT(forgetful(carry, resumed), ::testing::ElementsAre(-10.0f, -16.0f));
    }
  }
}

struct Ended {
  float anchor = 0;
  int members = 0;
};
/// Workers 0 and 1 fall by 1 and by 2 a step, of 10 tokens each, and end after step 7; worker 0
/// forgets its work after step `forgets[0]`, worker 1 after `forgets[1]` (0: never).
Ended ends_after(const std::string& method, std::int64_t H, std::array<int, 2> forgets) {
  Ended ended;
  run_in_process(2, [&](WorkerContext& context) {
    OuterOptions outer{.H = H, .lr = 1.0};
    if (method != "sparseloco") outer.momentum = 0.0;
    if (method == "sparseloco") outer.codec = "fp32";
    if (method == "streaming-diloco") outer.alpha = 0.0;
    Drift inner(static_cast<float>(1 + context.rank.value()), 10);
    const auto strategy = make_outer_strategy(method, outer, inner, context.exchange);
    for (int t = 1; t <= 7; ++t) {
      (void)strategy->step();
      if (t == forgets[static_cast<std::size_t>(context.rank.value())]) strategy->forget_own_work();
    }
    const std::vector<RoundReport> last = strategy->finish();
    if (context.rank != WorkerId(0)) return;
    ended = {.anchor = strategy->values(0)[0], .members = last.empty() ? 0 : last.back().members};
  });
  return ended;
}

// Worker 0's window is of 3 steps and worker 1's of 2, by tokens: (3 * 30 + 4 * 20) / 50 = 3.4.
TEST(ForgottenWork, AClosingRoundCountsAPartialWindowByItsTokens) {
  for (const std::string method : {"diloco", "streaming-diloco", "delayed", "co2"}) {
    const Ended one = ends_after(method, 4, {0, 5});
    EXPECT_FLOAT_EQ(one.anchor, -6 - 3.4f) << method;
    EXPECT_EQ(one.members, 2) << method;
    // With H = 100 it is the only round, and both windows are partial ones.
    EXPECT_FLOAT_EQ(ends_after(method, 100, {4, 5}).anchor, -3.4f) << method;
    // Worker 1 has nothing: it joined after the last step.
    const Ended late = ends_after(method, 100, {4, 7});
    EXPECT_FLOAT_EQ(late.anchor, -3) << method;
    EXPECT_EQ(late.members, 1) << method;
  }
  // Plain mean of contributions of at most the median norm, which is the lower one of two.
  EXPECT_FLOAT_EQ(ends_after("sparseloco", 100, {4, 5}).anchor, -3);
  EXPECT_EQ(ends_after("sparseloco", 100, {4, 7}).members, 1);
}

// The window of a joiner that ends with the run's last regular round has no closing round.
TEST(ForgottenWork, WhatNoRoundTakesIsSaid) {
  const auto said = [](std::array<int, 2> forgets, std::int64_t H) {
    ::testing::internal::CaptureStderr();
    (void)ends_after("diloco", H, forgets);
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(said({0, 5}, 7),
              ::testing::HasSubstr("worker 1: the run has ended, and no round has taken 2 steps of "
                                   "20 tokens that this worker has trained fragment 0 on"));
  EXPECT_THAT(said({7, 7}, 100), ::testing::HasSubstr("nobody has contributed to the closing "
                                                      "round of fragment 0"));
  EXPECT_THAT(said({0, 5}, 4), ::testing::Not(::testing::HasSubstr("no outer parameters")));
}

}  // namespace
}  // namespace isthmus::this_file
