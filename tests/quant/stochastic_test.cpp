// SPDX-License-Identifier: Apache-2.0
// Stochastic rounding: unbiased, twice the error of nearest for even steps, the same on every
// machine, and never further than one step.
#include <gtest/gtest.h>

#include <cstring>

#include "core/base/hash.h"
#include "isthmus/codec.h"
#include "quant/codec_values.h"

namespace isthmus::this_file {
namespace {

std::vector<float> round_trip(const Codec& codec, const std::vector<float>& x,
                              const EncodeKey& key) {
  std::vector<float> y(x.size());
  const auto result = decode(codec, encode(codec, x, key).bytes, y);
  EXPECT_TRUE(result) << result.error().what;
  return y;
}

class Stochastic : public ::testing::TestWithParam<const char*> {};

// Mean over K keys against x: the standard error is at most half a gap over sqrt(K), and no value
// of 256 should be five of them away.
TEST_P(Stochastic, TheMeanOverKeysIsTheValue) {
  const auto codec = make_codec(GetParam());
  constexpr std::size_t kValues = 256;
  constexpr std::uint64_t kKeys = 4000;
  std::vector<float> x = testing_support::normal_vector(kValues);
  std::vector<double> sum(kValues), squares(kValues);
  for (std::uint64_t k = 0; k < kKeys; ++k) {
    const std::vector<float> y = round_trip(*codec, x, {.seed = k, .worker = 1, .tile = 2});
    for (std::size_t i = 0; i < kValues; ++i) {
      sum[i] += static_cast<double>(y[i]);
      squares[i] += static_cast<double>(y[i]) * static_cast<double>(y[i]);
    }
  }
  for (std::size_t i = 0; i < kValues; ++i) {
    const double mean = sum[i] / kKeys;
    const double variance = std::max(squares[i] / kKeys - mean * mean, 0.0);
    const double error = std::sqrt(variance / kKeys);
    EXPECT_NEAR(mean, static_cast<double>(x[i]), 5 * error + 1e-3 + 2e-3 * std::fabs(x[i])) << i;
  }
}

TEST_P(Stochastic, KeysGiveDifferentAndRepeatableBytes) {
  const auto codec = make_codec(GetParam());
  const std::vector<float> x = testing_support::normal_vector(kTileValues);
  const EncodeKey key{.seed = 7, .worker = 2, .tile = 9};
  const auto bytes = encode(*codec, x, key).bytes;
  EXPECT_EQ(bytes, encode(*codec, x, key).bytes);
  EXPECT_NE(bytes, encode(*codec, x, {.seed = 8, .worker = 2, .tile = 9}).bytes);
  EXPECT_NE(bytes, encode(*codec, x, {.seed = 7, .worker = 3, .tile = 9}).bytes);
  EXPECT_NE(bytes, encode(*codec, x, {.seed = 7, .worker = 2, .tile = 10}).bytes);
}

// Scales that are rounded down let the largest value clip; elsewhere there is no bias at all.
INSTANTIATE_TEST_SUITE_P(
    Codecs, Stochastic,
    ::testing::Values("int8:256:rounding=stochastic", "int4:64:rounding=stochastic",
                      "uint8-minmax:256:rounding=stochastic", "nf4:64:rounding=stochastic",
                      "fp4-e2m1:64:rounding=stochastic", "fp4-e3m0:64:rounding=stochastic",
                      "fp8-e4m3:128:rounding=stochastic", "ternary:256:rounding=stochastic"),
    [](const auto& test) { return testing_support::test_name(test.param); });

// The bytes of one key, for good: a machine that draws other bits must fail here.
TEST(StochasticRounding, BytesOfAKeyAreAGoldenValue) {
  const auto codec = make_codec("int4:64:rounding=stochastic");
  std::vector<float> x(kTileValues);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 61) - 30.25f;
  const auto bytes = encode(*codec, x, {.seed = 1234567890123, .worker = 5, .tile = 6}).bytes;
  EXPECT_EQ(crc32c(bytes), 2697281297u);
}

}  // namespace
}  // namespace isthmus::this_file
