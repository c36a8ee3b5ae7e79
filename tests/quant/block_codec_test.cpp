// SPDX-License-Identifier: Apache-2.0
// Block codecs against their definitions: the published code tables, the nearest grid value found
// by search, hand-written layouts, and the data that broke public implementations.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "isthmus/codec.h"
#include "quant/codec_values.h"
#include "quant/math/block_code_math.h"

namespace isthmus::this_file {
namespace {

using testing_support::NamedValues;

std::vector<float> round_trip(const Codec& codec, const std::vector<float>& x) {
  std::vector<float> y(x.size());
  const auto result = decode(codec, encode(codec, x).bytes, y);
  EXPECT_TRUE(result) << result.error().what;
  return y;
}
std::vector<float> round_trip(const char* codec, const std::vector<float>& x) {
  return round_trip(*make_codec(codec), x);
}
std::vector<unsigned> bytes_of(const Encoded& encoded) {
  std::vector<unsigned> bytes;
  for (const std::byte b : encoded.bytes) bytes.push_back(std::to_integer<unsigned>(b));
  return bytes;
}

// The grids as published, positive half.
std::vector<double> grid_values(const std::string& codec) {
  if (codec.starts_with("int8") || codec.starts_with("int4")) {
    std::vector<double> values;
    for (int i = 0; i <= (codec.starts_with("int8") ? 127 : 7); ++i) values.push_back(i);
    return values;
  }
  if (codec.starts_with("fp4-e2m1")) return {0, .5, 1, 1.5, 2, 3, 4, 6};
  if (codec.starts_with("fp4-e3m0")) return {0, .25, .5, 1, 2, 4, 8, 16};
  const bool e4m3 = codec.starts_with("fp8-e4m3");
  const int mantissa_bits = e4m3 ? 3 : 2;
  const int bias = e4m3 ? 7 : 15;
  std::vector<double> values;
  for (int code = 0; code < (e4m3 ? 0x7F : 0x7C); ++code) {
    const int exponent = code >> mantissa_bits;
    const int mantissa = code & ((1 << mantissa_bits) - 1);
    const double fraction = static_cast<double>(mantissa) / (1 << mantissa_bits);
    values.push_back(exponent == 0 ? std::ldexp(fraction, 1 - bias)
                                   : std::ldexp(1 + fraction, exponent - bias));
  }
  return values;
}

class NearestTest : public ::testing::TestWithParam<const char*> {};

// |x - y| is the distance to the nearest value of scale * grid: the scale is largest / top, as IEEE
// division gives it, and quotient and product add at most a few roundings.
TEST_P(NearestTest, EveryValueGoesToTheNearestOfItsGrid) {
  const auto codec = make_codec(GetParam());
  const std::vector<double> grid = grid_values(GetParam());
  constexpr std::size_t kBlock = 64;
  for (const NamedValues& input : testing_support::hard_vectors(2000)) {
    const std::vector<float> y = round_trip(*codec, input.x);
    for (std::size_t begin = 0; begin < y.size(); begin += kBlock) {
      const std::size_t end = std::min(y.size(), begin + kBlock);
      double amax = 0;
      for (std::size_t i = begin; i < end; ++i) {
        amax = std::max(amax, std::fabs(static_cast<double>(input.x[i])));
      }
      if (amax < 1e-35) continue;  // the scale itself is subnormal; bounds hold in other tests
      const auto scale = static_cast<double>(static_cast<float>(amax / grid.back()));
      for (std::size_t i = begin; i < end; ++i) {
        const double x = std::fabs(static_cast<double>(input.x[i]));
        double nearest = amax;
        for (const double value : grid) nearest = std::min(nearest, std::fabs(x - value * scale));
        const double error = std::fabs(static_cast<double>(input.x[i]) - static_cast<double>(y[i]));
        ASSERT_LE(error, nearest + 4 * 0x1p-24 * amax) << input.name << ": " << input.x[i];
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Codecs, NearestTest,
                         ::testing::Values("int8:64", "int4:64", "fp4-e2m1:64", "fp4-e3m0:64",
                                           "fp8-e4m3:64", "fp8-e5m2:64"),
                         [](const auto& test) { return testing_support::test_name(test.param); });

class GridTest : public ::testing::TestWithParam<const char*> {};

// With the grid's largest value in every block the scale is 1, and grid values survive bit for bit,
// whatever the form of the scale.
TEST_P(GridTest, ValuesOnTheGridSurviveBitForBit) {
  const std::vector<double> grid = grid_values(GetParam());
  std::vector<float> x(kTileValues);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double value = i % 16 == 0 ? grid.back() : grid[i * 7 % grid.size()];
    x[i] = static_cast<float>(i % 3 == 0 ? -value : value);
    if (x[i] == 0) x[i] = 0;
  }
  for (const float power : {1.0f, 0x1p-20f, 0x1p40f}) {
    std::vector<float> scaled = x;
    for (float& value : scaled) value *= power;
    EXPECT_EQ(round_trip(GetParam(), scaled), scaled) << power;
  }
}
INSTANTIATE_TEST_SUITE_P(Codecs, GridTest,
                         ::testing::Values("int8:64", "int4:64", "int4:64:scale=fp16",
                                           "int4:64:scale=e8m0", "int8:64:scale=e8m0",
                                           "fp4-e2m1:64", "fp4-e2m1:64:scale=fp16",
                                           "fp4-e2m1:64:scale=e8m0", "fp4-e3m0:64", "fp8-e4m3:64",
                                           "fp8-e4m3:64:scale=e8m0", "fp8-e5m2:64",
                                           "fp8-e5m2:64:scale=e8m0", "int4:64:rounding=stochastic",
                                           "fp4-e2m1:64:rounding=stochastic"),
                         [](const auto& test) { return testing_support::test_name(test.param); });

// Ties, as the formats define them; 6, 16 and 7 keep the scale at 1.
TEST(Fp4E2M1, TiesGoToTheEvenCode) {
  const std::vector<float> x = {.25f, .75f, 1.25f, 1.75f, 2.5f, 3.5f, 5, 7, -0.0f};
  std::vector<float> y = round_trip("fp4-e2m1:64:scale=e8m0", x);  // scale 2^(2 - 2): 7 saturates
  EXPECT_EQ(y, (std::vector<float>{0, 1, 1, 2, 2, 4, 4, 6, -0.0f}));
  EXPECT_TRUE(std::signbit(y.back()));
}
TEST(Fp4E3M0, TiesGoToTheEvenExponent) {
  EXPECT_EQ(round_trip("fp4-e3m0:64", {.125f, .375f, .75f, 1.5f, 3, 6, 12, 16}),
            (std::vector<float>{0, .5f, .5f, 2, 2, 8, 8, 16}));
  EXPECT_EQ(round_trip("fp4-e3m0:64", {.126f, .374f, .376f, -.76f, 16}),
            (std::vector<float>{.25f, .25f, .5f, -1, 16}));
}
TEST(Fp4E3M0, LogMidpointsAreGeometricMeans) {
  const float root = 1.41421356f;
  EXPECT_EQ(round_trip("fp4-e3m0:64:midpoint=log", {root * .999f, root * 1.001f, .176f, .178f, 16}),
            (std::vector<float>{1, 2, 0, .25f, 16}));
}
TEST(Fp8, ScaledByOneTheyAreTheFormats) {
  // 448 and 57344 make the scale 1; fp8-e4m3 code plane after one fp32 scale.
  const auto codes = [](const char* codec, const std::vector<float>& x) {
    const std::vector<unsigned> bytes = bytes_of(encode(*make_codec(codec), x));
    return std::vector<unsigned>(bytes.begin() + 4, bytes.end());
  };
  EXPECT_EQ(codes("fp8-e4m3:64", {448, 1, 0x1p-9f, 0x1p-10f, -1, 0x1.8p-9f, 17, 19}),
            (std::vector<unsigned>{0x7E, 0x38, 0x01, 0x00, 0xB8, 0x02, 0x58, 0x5A}));
  EXPECT_EQ(codes("fp8-e5m2:64", {57344, 1, 0x1p-16f, 0x1p-17f, -1, 9, 11}),
            (std::vector<unsigned>{0x7B, 0x3C, 0x01, 0x00, 0xBC, 0x48, 0x4A}));
}
TEST(MxScale, FollowsTheOcpRule) {
  const auto scale_byte = [](float amax) {
    return bytes_of(encode(*make_codec("mxfp4"), std::vector<float>{0, amax}))[0];
  };
  EXPECT_EQ(scale_byte(6), 127u);
  EXPECT_EQ(scale_byte(7.9f), 127u);
  EXPECT_EQ(scale_byte(1), 125u);
  EXPECT_EQ(scale_byte(1e-45f), 0u);
  EXPECT_EQ(round_trip("mxfp4", {0, 7.9f}), (std::vector<float>{0, 6}));  // clips
  EXPECT_EQ(bytes_of(encode(*make_codec("mxfp4"), std::vector<float>(32))),
            std::vector<unsigned>(17));
  std::vector<float> x(32);
  x[3] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(bytes_of(encode(*make_codec("mxfp4"), x))[0], 0xFFu);
}

TEST(Layout, CodesAreLowBitsFirstBehindTheScales) {
  EXPECT_EQ(bytes_of(encode(*make_codec("int4:16"), std::vector<float>{7, -7, 1, -1, 2.5f})),
            (std::vector<unsigned>{0, 0, 0x80, 0x3F, 0x97, 0xF1, 0x02}));
  EXPECT_EQ(bytes_of(encode(*make_codec("fp4-e2m1:16"), std::vector<float>{6, -.5f, 1.5f})),
            (std::vector<unsigned>{0, 0, 0x80, 0x3F, 0x97, 0x03}));
  // L1 norm of these is 2; bit 1 is +, zero counts as +.
  EXPECT_EQ(bytes_of(encode(*make_codec("1bit:16"),
                            std::vector<float>{2, -4, 0, -0.0f, 1, -3, 2, 2, -4})),
            (std::vector<unsigned>{0, 0, 0, 0x40, 0xDD, 0x00}));
  // One relative scale is in [2^14, 2^15): 1 is 2^14 (0x7400 as fp16) of unit 2^-14 (byte 127).
  EXPECT_EQ(bytes_of(encode(*make_codec("int4:16:scale=fp16"), std::vector<float>{7})),
            (std::vector<unsigned>{127, 0x00, 0x74, 0x07}));
  // Three bits a code: 1 -> index 1 (.7560), -3 -> sign, index 3; rms sqrt(5).
  const std::vector<unsigned> lm3 =
      bytes_of(encode(*make_codec("lm3:16"), std::vector<float>{1, -3}));
  ASSERT_EQ(lm3.size(), 5u);
  EXPECT_EQ(lm3[4], 0u | (4u | 2u) << 3);  // .447 -> index 0; 1.34 -> index 2
}

TEST(NormOfOneBit, IsTheMeanOrTheRootMeanSquare) {
  const std::vector<float> x = {1, -7};
  EXPECT_EQ(round_trip("1bit", x), (std::vector<float>{4, -4}));
  EXPECT_EQ(round_trip("1bit:norm=l2", x), (std::vector<float>{5, -5}));
  EXPECT_EQ(round_trip("1bit:ef", x), (std::vector<float>{5, -5}));  // L2 under error feedback
  EXPECT_EQ(round_trip("1bit:norm=l1:ef", x), (std::vector<float>{4, -4}));
}

TEST(Ternary, KeepsTheMeanOfWhatExceedsTheThreshold) {
  // rms sqrt((16 + 4 + .01) / 4) = 2.24, threshold 1.37: 4 and -2 stay, their mean is 3.
  EXPECT_EQ(round_trip("ternary", {4, -2, .1f, 0}), (std::vector<float>{3, -3, 0, 0}));
}

// Outer gradients are of the order 1e-5; scales of 1e-7 are zero in plain fp16.
TEST(Fp16Scales, DoNotUnderflow) {
  for (const char* codec : {"int8:64:scale=fp16", "fp4-e2m1:64:scale=fp16", "int4:64:scale=fp16"}) {
    const std::vector<float> unit = testing_support::normal_vector(kTileValues);
    const std::vector<float> y = round_trip(codec, unit);
    for (const float power : {0x1p-20f, 0x1p-60f, 0x1p-110f, 0x1p100f}) {
      std::vector<float> small = unit;
      std::vector<float> expected = y;
      for (float& value : small) value *= power;
      for (float& value : expected) value *= power;
      EXPECT_EQ(round_trip(codec, small), expected) << codec << " times " << power;
    }
  }
  // Blocks 2^-28 below the tile's largest keep the precision of fp16.
  std::vector<float> x = testing_support::normal_vector(128);
  for (std::size_t i = 64; i < 128; ++i) x[i] *= 0x1p-28f;
  const std::vector<float> y = round_trip("int8:64:scale=fp16", x);
  for (std::size_t i = 64; i < 128; ++i) EXPECT_NEAR(y[i], x[i], 0x1p-28 * 4 / 127) << i;
}

TEST(Uint8MinMax, IsRightOnDataThatBrokeOthers) {
  struct Case {
    const char* what;
    float low, high;
  };
  for (const Case& each :
       {Case{"all negative", -11, -10}, Case{"not straddling zero", 10, 11},
        Case{"all positive and small", 1e-6f, 3e-6f}, Case{"wide", -3.4e38f, 3.4e38f},
        Case{"far from zero", 1e6f, 1e6f + 1}, Case{"subnormal", 1e-40f, 2e-40f}}) {
    std::vector<float> x(4096);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double share = static_cast<double>(i) / 4095;
      x[i] = static_cast<float>(static_cast<double>(each.low) * (1 - share) +
                                static_cast<double>(each.high) * share);
    }
    const std::vector<float> y = round_trip("uint8-minmax", x);
    const double step = (static_cast<double>(each.high) - static_cast<double>(each.low)) / 255;
    const double size = std::max(std::fabs(static_cast<double>(each.low)),
                                 std::fabs(static_cast<double>(each.high)));
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_LE(std::fabs(static_cast<double>(x[i]) - static_cast<double>(y[i])),
                step / 2 + 255 * 0x1p-150 + 4 * 0x1p-24 * size)
          << each.what << " at " << i << ": " << x[i] << " came back as " << y[i];
    }
  }
  EXPECT_EQ(round_trip("uint8-minmax", std::vector<float>(100, .3f)), std::vector<float>(100, .3f));
  EXPECT_EQ(round_trip("uint8-minmax", {-7.25f}), std::vector<float>{-7.25f});
}

TEST(Nf4, HalvingItsBordersGivesTheCodeOfCountingThem) {
  std::vector<float> hard = testing_support::bit_vector(100'000);
  for (const float border : kNf4Borders) {
    for (const int off : {-1, 0, 1}) {
      hard.push_back(float_of(bits_of(border) + static_cast<std::uint32_t>(off)));
    }
  }
  for (const float q : hard) ASSERT_EQ(nf4_code(q), Nf4Grid::code(q)) << q;
  for (const float q : testing_support::normal_vector(100'000, 2, 0.5)) {
    ASSERT_EQ(nf4_code(q), Nf4Grid::code(q)) << q;
  }
}

// Scales of all plain sizes, quotients of all sizes that an encoder meets.
TEST(PlainQuotient, IsTheQuotientWithoutADivision) {
  const Rng rng(5, Stream::kTestData);
  for (std::uint64_t i = 0; i < 2'000'000; ++i) {
    const auto words = rng.words(i);
    const std::uint32_t exponent = 27 + words[0] % 200;  // of 2^-100 .. 2^99
    const float scale = float_of(exponent << 23 | words[1] >> 9);
    const float q = static_cast<float>(static_cast<int>(words[2] % 4096) - 2048) / 16;
    const float near = q * scale;  // quotients near ties come out of roundings of these
    const float x = i % 2 == 0 ? near : float_of((bits_of(near) & 0xFF80'0000u) | words[3] >> 9);
    if (std::fabs(x) < scale / 4) continue;
    ASSERT_EQ(bits_of(plain_quotient(x, scale, 1.0f / scale)), bits_of(x / scale))
        << x << " / " << scale;
  }
}

TEST(Nf4, UsesTheTableOfItsPaper) {
  // QLoRA, appendix E.
  const std::vector<float> table = {-1.0f,        -0.6961928f,  -0.5250731f,   -0.39491749f,
                                    -0.28444138f, -0.18477343f, -0.091050036f, 0.0f,
                                    0.0795803f,   0.16093020f,  0.24611230f,   0.33791524f,
                                    0.44070983f,  0.5626170f,   0.72295684f,   1.0f};
  const std::vector<float> y = round_trip("nf4:16", table);
  for (std::size_t i = 0; i < table.size(); ++i) EXPECT_NEAR(y[i], table[i], 1e-7f) << i;
  for (std::size_t i = 0; i + 1 < table.size(); ++i) {
    const float middle = (table[i] + table[i + 1]) / 2;
    const float below = round_trip("nf4:16", {middle - 1e-5f, 1, -1})[0];
    const float above = round_trip("nf4:16", {middle + 1e-5f, 1, -1})[0];
    EXPECT_NEAR(below, table[i], 1e-7f) << i;
    EXPECT_NEAR(above, table[i + 1], 1e-7f) << i;
  }
}

TEST(LloydMax, LevelsAndBordersAreThoseOfTheUnitNormal) {
  // rms of each vector is 1.
  const auto level = [](const char* codec, float x) {
    return round_trip(codec, {x, std::sqrt(2 - x * x)})[0];
  };
  EXPECT_NEAR(level("lm2", .98f), .4528f, 1e-6f);
  EXPECT_NEAR(level("lm2", .983f), 1.5104f, 1e-6f);
  EXPECT_NEAR(level("lm3", .499f), .2451f, 1e-6f);
  EXPECT_NEAR(level("lm3", .502f), .7560f, 1e-6f);
  EXPECT_NEAR(level("lm3", -1.06f), -1.3439f, 1e-6f);
}

TEST(Nvfp4, BlockScalesAreE4M3OfTheTileScale) {
  // Largest values 6 and 3: tile scale 1/448, block scales 448 and 224.
  std::vector<float> x(32);
  x[0] = 6;
  x[1] = 1.5f;
  x[16] = -3;
  x[17] = .5f;
  EXPECT_EQ(round_trip("nvfp4", x), x);
  const std::vector<unsigned> bytes = bytes_of(encode(*make_codec("nvfp4"), x));
  EXPECT_EQ(bytes[4], 0x7Eu);  // 448
  EXPECT_EQ(bytes[5], 0x76u);  // 224
}

}  // namespace
}  // namespace isthmus::this_file
