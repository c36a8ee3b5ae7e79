// SPDX-License-Identifier: Apache-2.0
// Error feedback loses no mass, takes in no NaN, and lets SGD reach the floor of plain SGD where
// the same codec without it stalls.
#include "quant/codecs/error_feedback.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <bit>

#include "quant/codec_values.h"

namespace isthmus::this_file {
namespace {

class FeedbackTest : public ::testing::TestWithParam<const char*> {};

// sum of what was sent + e_T - sum of x. Two roundings a step: of p, and of e.
TEST_P(FeedbackTest, WhatIsNotSentIsKept) {
  const auto codec = make_codec(GetParam());
  constexpr std::size_t kValues = 5000;
  constexpr int kSteps = 200;
  ErrorFeedback feedback(kValues);
  std::vector<double> balance(kValues);
  std::vector<float> sent(kValues);
  double largest = 0;
  for (int t = 0; t < kSteps; ++t) {
    const std::vector<float> x =
        testing_support::normal_vector(kValues, static_cast<std::uint64_t>(t + 1));
    for (std::size_t i = 0; i < kValues; ++i) {
      largest = std::max(largest, std::fabs(static_cast<double>(x[i]) +
                                            static_cast<double>(feedback.residual()[i])));
    }
    const auto encoded = feedback.encode(*codec, x, {.seed = static_cast<std::uint64_t>(t)});
    ASSERT_TRUE(encoded) << encoded.error().what;
    ASSERT_TRUE(decode(*codec, encoded->bytes, sent));
    for (std::size_t i = 0; i < kValues; ++i) {
      balance[i] += static_cast<double>(sent[i]) - static_cast<double>(x[i]);
    }
  }
  for (std::size_t i = 0; i < kValues; ++i) {
    EXPECT_LE(std::fabs(balance[i] + static_cast<double>(feedback.residual()[i])),
              kSteps * 0x1p-24 * largest)
        << i;
  }
}

// Whole numbers under a power-of-two scale: p, what is sent and e are all exact.
TEST(ErrorFeedback, BalancesExactlyWhereEverythingIsRepresentable) {
  const auto codec = make_codec("int4:16:scale=e8m0");
  ErrorFeedback feedback(64);
  std::vector<double> balance(64);
  std::vector<float> sent(64);
  for (int t = 0; t < 100; ++t) {
    std::vector<float> x(64);
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = static_cast<float>(
          static_cast<int>((i * 37 + static_cast<std::size_t>(t) * 11) % 201) - 100);
    }
    ASSERT_TRUE(decode(*codec, feedback.encode(*codec, x)->bytes, sent));
    for (std::size_t i = 0; i < x.size(); ++i) {
      balance[i] += static_cast<double>(sent[i]) - static_cast<double>(x[i]);
    }
  }
  for (std::size_t i = 0; i < 64; ++i) {
    EXPECT_EQ(balance[i] + static_cast<double>(feedback.residual()[i]), 0) << i;
  }
}

TEST_P(FeedbackTest, TakesInNoNanAndStaysAsItWas) {
  const auto codec = make_codec(GetParam());
  ErrorFeedback feedback(5000);
  ASSERT_TRUE(feedback.encode(*codec, testing_support::normal_vector(5000)));
  const std::vector<float> before(feedback.residual().begin(), feedback.residual().end());
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::vector<float> tile = testing_support::normal_vector(904, 3);
    tile[70] = bad;
    std::vector<std::byte> bytes(codec->encoded_bytes(tile.size()));
    const auto refused = feedback.encode_tile(*codec, 4096, tile, bytes);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().index, 4096u + 70);
    EXPECT_THAT(refused.error().what, ::testing::HasSubstr("value 4166"));
    EXPECT_THAT(feedback.residual(), ::testing::ElementsAreArray(before));
    std::vector<float> y(tile.size());
    const auto decoded = codec->decode(bytes, y);
    EXPECT_TRUE(!decoded || !std::isfinite(y[70])) << "the receiver must meet it too";
  }
}

// x86 and a GPU pass on different NaNs; what is sent says none of it.
TEST_P(FeedbackTest, BytesDoNotTellOneNanFromAnother) {
  const auto codec = make_codec(GetParam());
  std::vector<std::byte> first;
  for (const std::uint32_t bits : {0x7FC0'0000u, 0x7FFF'FFFFu, 0xFFC0'0001u, 0x7F80'0123u}) {
    std::vector<float> tile = testing_support::normal_vector(kTileValues, 3);
    std::vector<float> residual = testing_support::normal_vector(kTileValues, 4, 1e-3);
    tile[70] = std::bit_cast<float>(bits);
    std::vector<std::byte> bytes(codec->encoded_bytes(tile.size()));
    ASSERT_FALSE(encode_with_feedback(*codec, residual, 1, 0, tile, bytes, {}));
    EXPECT_EQ(std::bit_cast<std::uint32_t>(tile[70]), 0x7FC0'0000u);
    if (first.empty()) first = bytes;
    EXPECT_EQ(bytes, first);
  }
}

TEST_P(FeedbackTest, AStoredResidualGoesOnAsIfNothingHappened) {
  const auto codec = make_codec(GetParam());
  ErrorFeedback feedback(5000);
  ASSERT_TRUE(feedback.encode(*codec, testing_support::normal_vector(5000, 1)));
  ErrorFeedback other(5000);
  other.restore(feedback.residual());
  const std::vector<float> next = testing_support::normal_vector(5000, 2);
  EXPECT_EQ(feedback.encode(*codec, next)->bytes, other.encode(*codec, next)->bytes);
  EXPECT_THAT(other.residual(), ::testing::ElementsAreArray(feedback.residual()));
}

INSTANTIATE_TEST_SUITE_P(Codecs, FeedbackTest,
                         ::testing::Values("1bit:ef", "1bit:norm=l1:ef", "lm2:ef", "ternary:ef",
                                           "topk:ef", "topk:64:value=sign:ef", "randk:ef",
                                           "dct-topk:ef", "fp4-e2m1:64:ef", "int8:ef", "bf16:ef",
                                           "int4:rounding=stochastic:ef"),
                         [](const auto& test) { return testing_support::test_name(test.param); });

TEST(ErrorFeedback, TilesAreTheVector) {
  const auto codec = make_codec("1bit:ef");
  const std::vector<float> x = testing_support::normal_vector(2 * kTileValues);
  ErrorFeedback whole(x.size()), tiles(x.size());
  const auto encoded = whole.encode(*codec, x);
  std::vector<float> second(x.begin() + kTileValues, x.end());
  std::vector<std::byte> bytes(codec->encoded_bytes(kTileValues));
  ASSERT_TRUE(tiles.encode_tile(*codec, kTileValues, second, bytes));
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), encoded->bytes.end() - std::ssize(bytes)));
}

TEST(ErrorFeedback, DecayLetsOldMassFade) {
  const auto codec = make_codec("topk:1");
  ErrorFeedback feedback(2, .5f);
  std::vector<float> y(2);
  ASSERT_TRUE(feedback.encode(*codec, std::vector<float>{8, 4}));  // sends 8
  EXPECT_THAT(feedback.residual(), ::testing::ElementsAre(0, 4));
  ASSERT_TRUE(decode(*codec, feedback.encode(*codec, std::vector<float>{1, 0})->bytes, y));
  EXPECT_THAT(y, ::testing::ElementsAre(0, 2));
}

// Two workers whose gradients differ by what cancels in the mean: f = sum a_i (w_i - c_i)^2 / 2,
// worker m sees a_i (w_i - c_i) +- b_i. Each compresses its own; the mean of signs is not the sign
// of the mean.
double loss_after_training(const char* spelling, bool with_feedback) {
  constexpr std::size_t kValues = 256;
  constexpr int kSteps = 4000;
  const auto codec = make_codec(spelling);
  const std::vector<float> target = testing_support::normal_vector(kValues, 1);
  const std::vector<float> offset = testing_support::normal_vector(kValues, 2, 3);
  std::vector<float> w(kValues), sent(kValues);
  ErrorFeedback feedback[] = {ErrorFeedback(kValues), ErrorFeedback(kValues)};
  for (int t = 0; t < kSteps; ++t) {
    const float rate = .5f / (1 + static_cast<float>(t) / 50);
    std::vector<float> mean(kValues);
    for (std::size_t m = 0; m < 2; ++m) {
      std::vector<float> g(kValues);
      for (std::size_t i = 0; i < kValues; ++i) {
        const float curvature = .5f + static_cast<float>(i % 4) / 4;
        g[i] = curvature * (w[i] - target[i]) + (m == 0 ? offset[i] : -offset[i]);
      }
      const auto bytes =
          with_feedback ? feedback[m].encode(*codec, g)->bytes : encode(*codec, g).bytes;
      EXPECT_TRUE(decode(*codec, bytes, sent));
      for (std::size_t i = 0; i < kValues; ++i) mean[i] += sent[i] / 2;
    }
    for (std::size_t i = 0; i < kValues; ++i) w[i] -= rate * mean[i];
  }
  double loss = 0;
  for (std::size_t i = 0; i < kValues; ++i) {
    const double error = static_cast<double>(w[i]) - static_cast<double>(target[i]);
    loss += (.5 + static_cast<double>(i % 4) / 4) * error * error / 2;
  }
  return loss;
}

TEST(EfSgd, ReachesTheFloorOfPlainSgdAndWithoutFeedbackItStalls) {
  const double start = 256 * .875 / 2;
  const double plain = loss_after_training("fp32", false);
  EXPECT_LT(plain, 1e-6 * start);
  for (const char* codec : {"1bit:256", "1bit:256:norm=l2", "topk:256", "ternary"}) {
    const double with = loss_after_training(codec, true);
    const double without = loss_after_training(codec, false);
    EXPECT_LT(with, 4e-3 * start) << codec;
    EXPECT_GT(without, 2e-2 * start) << codec << ": the must-fail twin has converged";
    EXPECT_GT(without, 50 * with) << codec;
  }
}

}  // namespace
}  // namespace isthmus::this_file
