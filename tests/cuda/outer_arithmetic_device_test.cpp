// SPDX-License-Identifier: Apache-2.0
// The arithmetic of outer methods on a device, against plain loops with one rounding an operation,
// and its norm against src/outer's.
#include <functional>
#include <limits>
#include <memory>

#include "cuda/device_test.h"
#include "kernels/cuda/outer_arithmetic.h"
#include "outer/methods/co2.h"
#include "outer/parts/flat_view.h"

namespace isthmus::cuda::this_file {
namespace {

using kernels::OuterStep;
using kernels::OuterStepRule;

// Values of all sizes: subnormal ones, some that cancel, some whose products need every bit.
std::vector<float> values(std::size_t n, std::uint32_t sub) {
  std::vector<float> x = normal_floats(n, sub);
  for (std::size_t i = 0; i < n; i += 5) x[i] *= 1e-39f;
  for (std::size_t i = 1; i < n; i += 7) x[i] *= 1e30f;
  return x;
}

class OuterArithmeticOnDevice : public DeviceTest {
 protected:
  /// Runs `on_device` with the device's arrays a, b, c, d (c and d may change) and `on_cpu` for
  /// each element; both must leave the same bits in c and d.
  using OnDevice =
      std::function<void(std::size_t n, const float* a, const float* b, float* c, float* d)>;
  using OnCpu = std::function<void(float a, float b, float& c, float& d)>;
  void expect_same(const OnDevice& on_device_do, const OnCpu& on_cpu_do) {
    for (const std::size_t n :
         {std::size_t{0}, std::size_t{1}, std::size_t{255}, std::size_t{20'011}}) {
      const std::vector<float> a = values(n, 1), b = values(n, 2);
      std::vector<float> c = values(n, 3), d = values(n, 4);
      const auto da = on_device(stream(), a), db = on_device(stream(), b);
      const auto dc = on_device(stream(), c), dd = on_device(stream(), d);
      on_device_do(n, da.data(), db.data(), dc.data(), dd.data());
      for (std::size_t i = 0; i < n; ++i) on_cpu_do(a[i], b[i], c[i], d[i]);
      EXPECT_TRUE(same_bits(c, on_host(stream(), dc))) << n;
      EXPECT_TRUE(same_bits(d, on_host(stream(), dd))) << n;
    }
  }
  void SetUp() override {
    DeviceTest::SetUp();
    if (!IsSkipped()) owned_ = std::make_unique<Stream>();
  }
  Stream& stream() { return *owned_; }

 private:
  std::unique_ptr<Stream> owned_;
};

TEST_F(OuterArithmeticOnDevice, SubtractsTheLocalValuesFromTheAnchor) {
  expect_same([&](std::size_t n, const float* a, const float* b, float* c,
                  float*) { outer_gradient(stream(), n, a, b, nullptr, c); },
              [](float a, float b, float& c, float&) { c = a - b; });
  expect_same([&](std::size_t n, const float* a, const float* b, float* c,
                  float* d) { outer_gradient(stream(), n, a, b, d, c); },
              [](float a, float b, float& c, float& d) { c = (a - b) + d; });
}

TEST_F(OuterArithmeticOnDevice, MixesAnchorAndLocalValues) {
  for (const float alpha : {0.0f, 0.3f, 0.5f, 1.0f}) {
    const float share = 1 - alpha;
    expect_same([&](std::size_t n, const float* a, const float*, float* c,
                    float*) { mix(stream(), n, alpha, a, c); },
                [&](float a, float, float& c, float&) {
                  c = alpha == 1 ? c : alpha == 0 ? a : alpha * c + share * a;
                });
  }
}

TEST_F(OuterArithmeticOnDevice, MovesLocalValuesWithTheAnchor) {
  expect_same([&](std::size_t n, const float* a, const float* b, float* c,
                  float*) { rebase(stream(), n, a, b, c); },
              [](float a, float b, float& c, float&) { c += a - b; });
}

TEST_F(OuterArithmeticOnDevice, TakesSharesInAndOut) {
  expect_same([&](std::size_t n, const float* a, const float*, float* c,
                  float*) { subtract_share(stream(), n, 3, a, c); },
              [](float a, float, float& c, float&) { c -= a / 3.0f; });
  expect_same([&](std::size_t n, const float* a, const float* b, float* c,
                  float*) { add_fresh_share(stream(), n, 7, a, b, c); },
              [](float a, float b, float& c, float&) { c += (a - b) / 7.0f; });
  expect_same([&](std::size_t n, const float*, const float*, float* c,
                  float*) { divide(stream(), n, 3, c); },
              [](float, float, float& c, float&) { c /= 3.0f; });
}

TEST_F(OuterArithmeticOnDevice, DelaysNesterovAsTheCpuDoes) {
  const OuterStep step{.rule = OuterStepRule::kNesterov, .eta = 0.7f, .mu = 0.9f, .every = 3};
  for (const std::size_t n : {std::size_t{1}, std::size_t{4099}}) {
    std::vector<float> x = values(n, 1), b = values(n, 2), s = values(n, 3);
    const auto dx = on_device(stream(), x), db = on_device(stream(), b),
               ds = on_device(stream(), s);
    for (std::uint32_t round = 1; round <= 4; ++round) {
      const std::vector<float> d = values(n, 10 + round);
      const auto dd = on_device(stream(), d);
      const bool closes = round % 3 == 0;
      kernels::delayed_nesterov_step(step, closes, x, d, b, s);
      delayed_nesterov_step(stream(), step, closes, n, dx.data(), dd.data(), db.data(), ds.data());
      stream().synchronize();
    }
    EXPECT_TRUE(same_bits(x, on_host(stream(), dx)));
    EXPECT_TRUE(same_bits(b, on_host(stream(), db)));
    EXPECT_TRUE(same_bits(s, on_host(stream(), ds)));
  }
}

TEST_F(OuterArithmeticOnDevice, StepsAsCo2Does) {
  const OuterStep step{.rule = OuterStepRule::kHeavyBall, .eta = 0.7f, .mu = 0.9f};
  for (const bool with_momentum : {true, false}) {
    for (const float clip : {0.0f, 0.25f}) {
      constexpr std::size_t kValues = 2 * 4096 + 77;
      std::vector<float> x = values(kValues, 1), d = values(kValues, 2);
      std::vector<float> m = with_momentum ? values(kValues, 3) : std::vector<float>();
      const auto dx = on_device(stream(), x), dd = on_device(stream(), d),
                 dm = on_device(stream(), m);
      const DeviceArray<float> moved(kValues);
      const DeviceArray<double> tiles(3), norm(1);
      const double expected = outer::co2_step(step, 1.7f, clip, x, d, m);
      co2_step(stream(), step, 1.7f, clip > 0 ? clip : std::numeric_limits<float>::infinity(),
               kValues, dx.data(), dd.data(), dm.data(), moved.data());
      l2_norm(stream(), kValues, moved.data(), tiles.data(), norm.data());
      EXPECT_TRUE(same_bits(x, on_host(stream(), dx)));
      EXPECT_TRUE(same_bits(d, on_host(stream(), dd)));
      EXPECT_TRUE(same_bits(m, on_host(stream(), dm)));
      EXPECT_TRUE(same_bits(std::vector<double>{expected}, on_host(stream(), norm)));
    }
  }
}

TEST_F(OuterArithmeticOnDevice, AddsUpTheNormInTheOrderOfTheCpu) {
  for (const std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{13}, std::size_t{4096},
                              std::size_t{4097}, std::size_t{40 * 4096 + 5}}) {
    const std::vector<float> x = values(n, 5);
    const auto dx = on_device(stream(), x);
    const DeviceArray<double> tiles((n + 4095) / 4096), norm(1);
    l2_norm(stream(), n, dx.data(), tiles.data(), norm.data());
    EXPECT_TRUE(same_bits(std::vector<double>{outer::l2_norm(x)}, on_host(stream(), norm))) << n;
  }
}

}  // namespace
}  // namespace isthmus::cuda::this_file
