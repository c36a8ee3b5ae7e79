// SPDX-License-Identifier: Apache-2.0
#include "outer/parts/clipped_mean.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/rng.h"
#include "outer/parts/flat_view.h"

namespace isthmus::this_file {
namespace {

std::vector<float> normal(std::size_t n, std::uint64_t seed, double scale = 1) {
  const Rng rng(seed, Stream::kTestData);
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>(scale * rng.normal(i));
  return x;
}

// The clip by its definition, in whole vectors of fp32: norms, sort, scale, add, divide.
std::vector<float> naive_clipped_mean(const std::vector<std::vector<float>>& sent) {
  std::vector<double> norms;
  for (const std::vector<float>& each : sent) {
    double squares = 0;
    for (const float v : each) squares += static_cast<double>(v) * static_cast<double>(v);
    norms.push_back(std::sqrt(squares));
  }
  std::vector<double> sorted = norms;
  std::sort(sorted.begin(), sorted.end());
  const double median = sorted[(sorted.size() + 1) / 2 - 1];
  std::vector<float> mean(sent[0].size());
  for (std::size_t i = 0; i < mean.size(); ++i) {
    for (std::size_t m = 0; m < sent.size(); ++m) {
      mean[i] += static_cast<float>(std::min(1.0, median / norms[m])) * sent[m][i];
    }
    mean[i] /= static_cast<float>(sent.size());
  }
  return mean;
}

TEST(ClippedMean, IsThatOfItsDefinition) {
  const auto codec = make_codec("topk:64:value=2bit");
  for (std::size_t members = 2; members <= 5; ++members) {
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
      std::vector<Encoded> contributions;
      std::vector<std::vector<float>> sent;
      for (std::size_t m = 0; m < members; ++m) {
        const double loudness = std::pow(3.0, static_cast<double>((m * 7 + seed) % 5));
        const std::vector<float> x = normal(10001, 100 * seed + m, loudness);
        contributions.push_back(encode(*codec, x));
        sent.emplace_back(x.size());
        ASSERT_TRUE(decode(*codec, contributions.back().bytes, sent.back()));
      }
      const outer::ClippedMean mean = outer::clipped_mean(*codec, contributions, 10001);
      const std::vector<float> expected = naive_clipped_mean(sent);
      EXPECT_EQ(mean.used, static_cast<int>(members));
      // The two sum squares in another order, so a factor may differ in its last bit.
      for (std::size_t i = 0; i < expected.size(); ++i) {
        ASSERT_NEAR(mean.values[i], expected[i], 1e-6 * std::fabs(expected[i]) + 1e-30)
            << members << " members, seed " << seed << ", " << i;
      }
      EXPECT_LE(outer::l2_norm(mean.values), [&] {
        std::vector<double> norms;
        for (const auto& each : sent) norms.push_back(outer::l2_norm(each));
        std::sort(norms.begin(), norms.end());
        return norms[(members - 1) / 2] * (1 + 1e-6);
      }());
    }
  }
}

TEST(ClippedMean, EqualNormsArePlainlyAveragedBitForBit) {
  const auto codec = make_codec("fp32");
  std::vector<float> x = normal(5000, 3);
  std::vector<float> y = x;
  for (float& value : y) value = -value / 2;
  for (float& value : x) value /= 2;
  const std::vector<Encoded> both = {encode(*codec, x), encode(*codec, y)};
  for (const float value : outer::clipped_mean(*codec, both, 5000).values) EXPECT_EQ(value, 0.0f);
}

TEST(ClippedMean, WhatDoesNotDecodeIsLeftOut) {
  const auto codec = make_codec("topk:64:value=2bit");
  std::vector<float> bad = normal(5000, 4);
  bad[77] = std::numeric_limits<float>::infinity();
  const Encoded good = encode(*codec, normal(5000, 5));
  const std::vector<Encoded> all = {encode(*codec, bad), good, {.values = 5000, .bytes = {}}};
  const outer::ClippedMean mean = outer::clipped_mean(*codec, all, 5000);
  EXPECT_EQ(mean.used, 1);
  std::vector<float> expected(5000);
  ASSERT_TRUE(decode(*codec, good.bytes, expected));
  EXPECT_EQ(mean.values, expected);
  EXPECT_EQ(outer::clipped_mean(*codec, std::span(all).first(1), 5000).used, 0);
}

}  // namespace
}  // namespace isthmus::this_file
