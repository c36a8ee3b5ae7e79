// SPDX-License-Identifier: Apache-2.0
// Error of each codec on four distributions against the figures computed independently with numpy
// for the specification of the codecs (2^22 values): normal values to 1 %, Laplace and t to 5 %.
// Two looser cases, where the published figure itself is one draw of something wide: rows, whose
// power sits in a few of the 4096 (for blocks within a row the expected figure is that of normal
// values), and t with one scale for 4096 values, whose fourth moment is infinite.
#include <gtest/gtest.h>

#include <numbers>

#include "isthmus/codec.h"
#include "quant/codec_values.h"

namespace isthmus::this_file {
namespace {

constexpr std::size_t kValues = std::size_t{1} << 22;
constexpr std::uint64_t kSeed = 20240917;

// One of each: normal, Laplace, Student's t with 4 degrees of freedom, and rows of 1024 normal
// values each scaled by exp(normal).
struct Distributions {
  std::vector<float> g, l, t4, r;
  Distributions() : g(testing_support::normal_vector(kValues, kSeed)), l(g), t4(g), r(g) {
    const Rng rng(kSeed + 1, Stream::kTestData);
    const Rng rows(kSeed + 2, Stream::kTestData);
    for (std::size_t i = 0; i < kValues; ++i) {
      const double u = rng.uniform(i, 1) + 0x1p-54;
      const double v = rng.uniform(i, 2) + 0x1p-54;
      const double w = rng.uniform(i, 3);
      l[i] = static_cast<float>(w < .5 ? std::log(u) : -std::log(u));
      // A chi-square of four degrees is -2 log(u v).
      t4[i] = static_cast<float>(static_cast<double>(g[i]) / std::sqrt(-std::log(u * v) / 2));
      r[i] = static_cast<float>(static_cast<double>(g[i]) * std::exp(rows.normal(i / 1024)));
    }
  }
};
const Distributions& distributions() {
  static const Distributions kAll;
  return kAll;
}

double nmse(const Codec& codec, const std::vector<float>& x) {
  std::vector<float> y(x.size());
  const auto decoded = decode(codec, encode(codec, x).bytes, y);
  EXPECT_TRUE(decoded) << decoded.error().what;
  double error = 0;
  double power = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double difference = static_cast<double>(x[i]) - static_cast<double>(y[i]);
    error += difference * difference;
    power += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  return error / power;
}

// A figure on rows that is one draw: top-k picks among the four rows of a tile, and a few tiles
// hold the power; other seeds give figures 40 % apart.
constexpr double kOneDraw = -1;

struct Row {
  const char* codec;
  double g, l, t4, r;
};
std::ostream& operator<<(std::ostream& out, const Row& row) { return out << row.codec; }

class NmseTest : public ::testing::TestWithParam<Row> {};

TEST_P(NmseTest, IsThePublishedFigure) {
  const Row& row = GetParam();
  const auto codec = make_codec(row.codec);
  EXPECT_NEAR(nmse(*codec, distributions().g), row.g, .01 * row.g);
  EXPECT_NEAR(nmse(*codec, distributions().l), row.l, .05 * row.l);
  const double tail = codec->name().find(":4096") == std::string::npos ? .05 : .10;
  EXPECT_NEAR(nmse(*codec, distributions().t4), row.t4, tail * row.t4);
  if (row.r != kOneDraw) {
    EXPECT_NEAR(nmse(*codec, distributions().r), row.r, .08 * row.r);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Codecs, NmseTest,
    ::testing::Values(Row{"fp32", 0, 0, 0, 0}, Row{"bf16", 2.76e-6, 2.75e-6, 2.75e-6, 2.70e-6},
                      Row{"fp16", 4.32e-8, 4.30e-8, 4.30e-8, 4.25e-8},
                      Row{"int8:32", 2.86e-5, 4.54e-5, 5.32e-5, 2.85e-5},
                      Row{"int8:64", 3.52e-5, 6.17e-5, 7.94e-5, 3.61e-5},
                      Row{"int8", 4.84e-5, 1.01e-4, 1.67e-4, 5.16e-5},
                      Row{"int8:256:scale=fp16", 4.84e-5, 1.01e-4, 1.67e-4, 5.16e-5},
                      Row{"int8:256:rounding=stochastic", 9.70e-5, 2.03e-4, 3.35e-4, 1.02e-4},
                      Row{"int8:4096", 7.52e-5, 2.11e-4, 6.56e-4, 2.03e-4},
                      Row{"uint8-minmax", 6.78e-5, 1.77e-4, 4.39e-4, 1.83e-4},
                      Row{"fp8-e4m3", 6.61e-4, 6.16e-4, 5.76e-4, 6.67e-4},
                      Row{"fp8-e4m3:32:scale=e8m0", 8.62e-4, 1.00e-3, 1.04e-3, 8.93e-4},
                      Row{"fp8-e5m2", 2.63e-3, 2.45e-3, 2.29e-3, 2.60e-3},
                      Row{"int4:32", 9.42e-3, 1.47e-2, 1.73e-2, 9.31e-3},
                      Row{"int4", 1.16e-2, 1.99e-2, 2.57e-2, 1.18e-2},
                      Row{"int4:256", 1.60e-2, 3.25e-2, 5.29e-2, 1.68e-2},
                      Row{"nf4", 8.46e-3, 1.08e-2, 1.24e-2, 8.62e-3},
                      Row{"nf4:256", 9.72e-3, 1.53e-2, 2.24e-2, 9.77e-3},
                      Row{"mxfp4", 1.32e-2, 1.61e-2, 1.72e-2, 1.35e-2},
                      Row{"nvfp4", 9.04e-3, 8.60e-3, 8.44e-3, 8.99e-3},
                      Row{"fp4-e2m1:32:scale=fp16", 1.02e-2, 1.05e-2, 1.07e-2, 1.03e-2},
                      Row{"fp4-e2m1:64:scale=fp16", 1.12e-2, 1.26e-2, 1.36e-2, 1.12e-2},
                      Row{"fp4", 1.12e-2, 1.26e-2, 1.36e-2, 1.12e-2},
                      Row{"fp4-e2m1:256", 1.24e-2, 1.67e-2, 2.27e-2, 1.23e-2},
                      Row{"fp4-e3m0:32", 3.26e-2, 2.79e-2, 2.60e-2, 3.22e-2},
                      Row{"fp4-e3m0:256", 3.78e-2, 3.58e-2, 3.38e-2, 3.74e-2},
                      Row{"fp4-e3m0:256:rounding=stochastic", 7.99e-2, 7.55e-2, 7.16e-2, 7.73e-2},
                      Row{"lm3", 3.43e-2, 7.10e-2, 0.107, 3.51e-2},
                      Row{"lm2", 0.1168, 0.190, 0.223, 0.118},
                      Row{"ternary", 0.1889, 0.265, 0.309, 0.190},
                      Row{"ternary:256:rounding=stochastic", 1.434, 2.08, 2.74, 1.48},
                      Row{"1bit:1024:norm=l2", 0.4039, 0.586, 0.584, 0.407},
                      Row{"1bit", 0.3631, 0.500, 0.498, 0.365},
                      Row{"topk:32", 0.9307, 0.862, 0.800, 0.826},
                      Row{"topk:64:value=sign", 0.8821, 0.792, 0.756, 0.725},
                      Row{"topk:64:value=2bit", 0.8822, 0.791, 0.755, kOneDraw},
                      Row{"topk:128", 0.7999, 0.672, 0.620, 0.561},
                      Row{"topk:128:value=int8:index=rice", 0.7999, 0.672, 0.620, 0.561},
                      Row{"topk:256:value=int8", 0.6754, 0.523, 0.491, kOneDraw},
                      Row{"topk:1024", 0.2764, 0.163, 0.174, kOneDraw},
                      Row{"randk:128", 0.9686, 0.9686, 0.9686, 0.9686},
                      Row{"dct-topk:32", 0.9306, 0.9306, 0.9307, 0.9305}),
    [](const auto& test) { return testing_support::test_name(test.param.codec); });

// Closed forms on normal values.
TEST(NmseClosedForms, OneBitIsAsTheNormalDistributionSays) {
  const std::vector<float>& x = distributions().g;
  EXPECT_NEAR(nmse(*make_codec("1bit:4096"), x), 1 - 2 / std::numbers::pi, 1e-3);
  EXPECT_NEAR(nmse(*make_codec("1bit:4096:norm=l2"), x), 2 - 2 * std::sqrt(2 / std::numbers::pi),
              1e-3);
}

TEST(NmseClosedForms, RandomKeepsItsShareOfTheEnergy) {
  EXPECT_NEAR(nmse(*make_codec("randk:1024"), distributions().g), 1 - 1024.0 / 4096, 1e-3);
}

TEST(NmseClosedForms, StochasticRoundingDoublesTheErrorOfEvenSteps) {
  const std::vector<float>& x = distributions().g;
  EXPECT_NEAR(
      nmse(*make_codec("int4:256:rounding=stochastic"), x) / nmse(*make_codec("int4:256"), x), 2,
      .02);
}

}  // namespace
}  // namespace isthmus::this_file
