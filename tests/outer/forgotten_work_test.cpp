// SPDX-License-Identifier: Apache-2.0
// What a joiner is made of: an inner loop that stands still, and a worker that forgets its work.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace isthmus::this_file
