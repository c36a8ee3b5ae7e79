// SPDX-License-Identifier: Apache-2.0
// The outer step on the CPU against its definition.
#include "kernels/outer_step.h"

#include <gmock/gmock.h>

#include <array>
#include <vector>

#include "kernels/cuda/device.h"

namespace isthmus::kernels::this_file {
namespace {

// eta = 1/2, mu = 1/4 and small integers: every product and sum is exact, so equality holds.
TEST(OuterStep, FollowsItsDefinitionForTwoSteps) {
  struct Case {
    OuterStepRule rule;
    float x, b;  // after x = 8, d = 4, then d = 8
  };
  // sgd: 8 - 2 - 4. nesterov: b = 4, x = 8 - (4 + 1)/2 = 5.5; b = 9, x = 5.5 - (8 + 2.25)/2.
  // heavy ball: b = 4, x = 6; b = 9, x = 1.5.
  for (const Case& expected :
       {Case{OuterStepRule::kSgd, 2, 0}, Case{OuterStepRule::kNesterov, 0.375f, 9},
        Case{OuterStepRule::kHeavyBall, 1.5f, 9}}) {
    std::array<float, 1> x = {8};
    std::array<float, 1> b = {0};
    const bool momentum = expected.rule != OuterStepRule::kSgd;
    for (const float d : {4.0f, 8.0f}) {
      outer_step({.rule = expected.rule, .eta = 0.5f, .mu = 0.25f}, x, std::span(&d, 1),
                 momentum ? std::span<float>(b) : std::span<float>());
    }
    EXPECT_EQ(x[0], expected.x);
    EXPECT_EQ(b[0], expected.b);
  }
}

// mu b = (1 + 2^-12)^2 needs 25 bits: rounded to even it loses its last one, and adding d = -1 then
// leaves 2^-11 exactly. A fused multiply-add would keep 2^-11 + 2^-24.
TEST(OuterStep, RoundsEachProductBeforeTheSum) {
  std::vector<float> x(64, 0.0f);
  std::vector<float> b(64, 1.0f + 0x1p-12f);
  const std::vector<float> d(64, -1.0f);
  outer_step({.rule = OuterStepRule::kHeavyBall, .eta = 1, .mu = 1.0f + 0x1p-12f}, x, d, b);
  EXPECT_THAT(b, ::testing::Each(0x1p-11f));
}

TEST(Device, WhereThereIsNoneItIsSaid) {
  EXPECT_EQ(cuda::devices().empty(), !cuda::unavailable().empty());
}

}  // namespace
}  // namespace isthmus::kernels::this_file
