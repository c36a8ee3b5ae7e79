// SPDX-License-Identifier: Apache-2.0
// int8 against a plain computation in double precision.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "isthmus/codec.h"
#include "quant/codec_values.h"

namespace isthmus::this_file {
namespace {

using testing_support::NamedValues;

// A quotient x/s and its product with s are rounded, each by at most 2^-24 of the value.
constexpr double kRounding = 3 * 0x1p-24;

class Int8Blocks : public ::testing::TestWithParam<int> {};

TEST_P(Int8Blocks, ErrorIsAtMostHalfAStepOfTheBlock) {
  const auto block = static_cast<std::size_t>(GetParam());
  const auto codec = make_codec("int8:" + std::to_string(block));
  for (const NamedValues& input : testing_support::hard_vectors(3001)) {
    std::vector<float> y(input.x.size());
    ASSERT_TRUE(decode(*codec, encode(*codec, input.x).bytes, y)) << input.name;
    for (std::size_t begin = 0; begin < y.size(); begin += block) {
      const std::size_t end = std::min(y.size(), begin + block);
      double amax = 0;
      for (std::size_t i = begin; i < end; ++i) {
        amax = std::max(amax, std::fabs(static_cast<double>(input.x[i])));
      }
      // Below the normal range the step is a whole number of smallest units, rounded up.
      const double unit = static_cast<double>(std::numeric_limits<float>::denorm_min());
      const double step = amax / 127 < 0x1p-126 ? std::ceil(amax / 127 / unit) * unit : amax / 127;
      for (std::size_t i = begin; i < end; ++i) {
        ASSERT_LE(std::fabs(static_cast<double>(input.x[i]) - static_cast<double>(y[i])),
                  step / 2 + kRounding * amax)
            << input.name << " at " << i << ": " << input.x[i] << " came back as " << y[i];
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Blocks, Int8Blocks, ::testing::Values(1, 16, 64, 256, 4096));

TEST(Int8Codec, LayoutIsScalesThenCodes) {
  // Two blocks of 4 and a short one: scales 1, 2 and 0.5.
  const std::vector<float> x = {127, -127, 0.5f, 1.5f, 254, 3, 5, -1, -63.5f};
  const Encoded encoded = encode(*make_codec("int8:4"), x);
  ASSERT_EQ(encoded.bytes.size(), 3 * sizeof(float) + x.size());
  std::array<float, 3> scales{};
  std::memcpy(scales.data(), encoded.bytes.data(), sizeof scales);
  EXPECT_EQ(scales, (std::array<float, 3>{1, 2, 0.5f}));
  std::array<std::int8_t, 9> codes{};
  std::memcpy(codes.data(), encoded.bytes.data() + sizeof scales, sizeof codes);
  // 0.5 -> 0, 1.5 -> 2, 3/2 -> 2, 5/2 -> 2, -1/2 -> 0: ties to even.
  EXPECT_EQ(codes, (std::array<std::int8_t, 9>{127, -127, 0, 2, 127, 2, 2, 0, -127}));
}

TEST(Int8Codec, OneValueComesBackWithinOneRounding) {
  const auto codec = make_codec("int8");
  for (const float x : {1.0f, -0.1f, 3e-39f, -1e38f}) {
    float y = 0;
    ASSERT_TRUE(decode(*codec, encode(*codec, std::span(&x, 1)).bytes, std::span(&y, 1)));
    // A subnormal scale is rounded up by less than one smallest unit, and there are 127 steps.
    EXPECT_NEAR(y, x, std::max(0x1p-23f * std::fabs(x), 127 * 0x1p-149f)) << x;
  }
}

TEST(Int8Codec, AnOutlierCostsOnlyItsOwnBlock) {
  const auto codec = make_codec("int8:64");
  std::vector<float> x(256, 0.01f);
  x[70] = 1000.0f;
  std::vector<float> y(x.size());
  ASSERT_TRUE(decode(*codec, encode(*codec, x).bytes, y));
  EXPECT_EQ(y[71], 0.0f);
  EXPECT_NEAR(y[63], 0.01f, 1e-8f);
  EXPECT_NEAR(y[128], 0.01f, 1e-8f);
}

}  // namespace
}  // namespace isthmus::this_file
