// SPDX-License-Identifier: Apache-2.0
// Error of each codec on N(0, 1) against the figures computed independently with numpy for the
// specification of the codecs (2^22 values), where rows with a block of at most 4096 repeat to 1 %.
#include <gtest/gtest.h>

#include "isthmus/codec.h"
#include "quant/codec_values.h"

namespace isthmus {
namespace {

constexpr std::size_t kValues = std::size_t{1} << 20;
constexpr double kRelativeSpread = 0.01;

double nmse(const std::vector<float>& x, const std::vector<float>& y) {
  double error = 0;
  double power = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double difference = static_cast<double>(x[i]) - static_cast<double>(y[i]);
    error += difference * difference;
    power += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  return error / power;
}

struct Row {
  const char* codec;
  double nmse;
};

class NmseTest : public ::testing::TestWithParam<Row> {};

TEST_P(NmseTest, OnNormalValuesIsThePublishedFigure) {
  const auto codec = make_codec(GetParam().codec);
  const std::vector<float> x = testing::normal_vector(kValues, 20240917);
  std::vector<float> y(x.size());
  ASSERT_TRUE(decode(*codec, encode(*codec, x).bytes, y));
  EXPECT_NEAR(nmse(x, y), GetParam().nmse, kRelativeSpread * GetParam().nmse);
}

INSTANTIATE_TEST_SUITE_P(Codecs, NmseTest,
                         ::testing::Values(Row{"fp32", 0}, Row{"bf16", 2.76e-6},
                                           Row{"fp16", 4.32e-8}, Row{"int8:32", 2.86e-5},
                                           Row{"int8:64", 3.52e-5}, Row{"int8", 4.84e-5},
                                           Row{"int8:4096", 7.52e-5}));

}  // namespace
}  // namespace isthmus
