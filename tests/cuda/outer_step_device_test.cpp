// SPDX-License-Identifier: Apache-2.0
// The outer step on a device gives the CPU's bits.
#include "cuda/device_test.h"
#include "kernels/cuda/outer_step.h"

namespace isthmus::cuda::this_file {
namespace {

using kernels::OuterStep;
using kernels::OuterStepRule;

class OuterStepOnDevice : public DeviceTest, public ::testing::WithParamInterface<OuterStepRule> {};

TEST_P(OuterStepOnDevice, GivesTheBitsOfTheCpuOverSeveralSteps) {
  const OuterStep step{.rule = GetParam(), .eta = 0.7f, .mu = 0.9f};
  const bool momentum = GetParam() != OuterStepRule::kSgd;
  Stream stream;
  // The largest takes several elements a thread; 1e-39 stays subnormal throughout.
  for (const std::size_t n : {std::size_t{1}, std::size_t{255}, std::size_t{1'500'000}}) {
    for (const double scale : {1.0, 1e-39}) {
      std::vector<float> x = normal_floats(n, 0, scale);
      std::vector<float> b(momentum ? n : 0);
      const DeviceArray<float> x_device = on_device(stream, x);
      const DeviceArray<float> b_device = on_device(stream, b);
      for (std::uint32_t round = 1; round <= 3; ++round) {
        const std::vector<float> d = normal_floats(n, round, scale);
        const DeviceArray<float> d_device = on_device(stream, d);
        kernels::outer_step(step, x, d, b);
        outer_step(stream, step, n, x_device.data(), d_device.data(), b_device.data());
        stream.synchronize();
      }
      EXPECT_TRUE(same_bits(x, on_host(stream, x_device))) << "n = " << n << ", scale " << scale;
      EXPECT_TRUE(same_bits(b, on_host(stream, b_device))) << "n = " << n << ", scale " << scale;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, OuterStepOnDevice,
                         ::testing::Values(OuterStepRule::kSgd, OuterStepRule::kNesterov,
                                           OuterStepRule::kHeavyBall));

}  // namespace
}  // namespace isthmus::cuda::this_file
