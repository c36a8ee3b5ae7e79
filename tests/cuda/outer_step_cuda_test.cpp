// SPDX-License-Identifier: Apache-2.0
// The outer step on a CUDA device gives the CPU's bits.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

#include "core/rng.h"
#include "kernels/cuda_device.h"
#include "kernels/outer_step.h"

namespace isthmus::kernels {
namespace {

std::vector<float> values(std::size_t n, std::uint32_t sub, double scale) {
  const Rng rng(17, Stream::kTestData);
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>(scale * rng.normal(i, sub));
  return x;
}
bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class OuterStepCuda : public ::testing::TestWithParam<OuterStepRule> {
 protected:
  void SetUp() override {
    if (!cuda_unavailable().empty()) GTEST_SKIP() << cuda_unavailable();
  }
};

TEST_P(OuterStepCuda, GivesTheBitsOfTheCpuOverSeveralSteps) {
  const OuterStep step{.rule = GetParam(), .eta = 0.7f, .mu = 0.9f};
  const bool momentum = GetParam() != OuterStepRule::kSgd;
  // The largest takes several elements a thread; 1e-39 stays subnormal throughout.
  for (const std::size_t n : {std::size_t{1}, std::size_t{255}, std::size_t{3'000'000}}) {
    for (const double scale : {1.0, 1e-5, 1e-39}) {
      std::vector<float> x = values(n, 0, scale);
      std::vector<float> b(momentum ? n : 0);
      std::vector<float> x_cuda = x;
      std::vector<float> b_cuda = b;
      for (std::uint32_t round = 1; round <= 3; ++round) {
        const std::vector<float> d = values(n, round, scale);
        outer_step(step, x, d, b);
        outer_step_cuda(step, x_cuda, d, b_cuda);
      }
      EXPECT_TRUE(same_bits(x, x_cuda)) << "n = " << n << ", scale " << scale;
      EXPECT_TRUE(same_bits(b, b_cuda)) << "n = " << n << ", scale " << scale;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, OuterStepCuda,
                         ::testing::Values(OuterStepRule::kSgd, OuterStepRule::kNesterov,
                                           OuterStepRule::kHeavyBall));

}  // namespace
}  // namespace isthmus::kernels
