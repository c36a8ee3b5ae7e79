// SPDX-License-Identifier: Apache-2.0
// Properties every codec has, and the exact vectors of the two-byte formats.
#include "isthmus/codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "quant/codec_values.h"

namespace isthmus::this_file {
namespace {

using testing_support::hard_vectors;
using testing_support::NamedValues;

std::vector<float> round_trip(const Codec& codec, const std::vector<float>& x) {
  std::vector<float> y(x.size());
  const auto result = decode(codec, encode(codec, x).bytes, y);
  EXPECT_TRUE(result) << result.error().what;
  return y;
}
std::vector<std::uint32_t> bits(const std::vector<float>& x) {
  std::vector<std::uint32_t> out(x.size());
  std::transform(x.begin(), x.end(), out.begin(),
                 [](float v) { return std::bit_cast<std::uint32_t>(v); });
  return out;
}
std::uint16_t code_of(const Codec& codec, float x) {
  std::uint16_t code = 0;
  const Encoded encoded = encode(codec, std::span<const float>(&x, 1));
  std::memcpy(&code, encoded.bytes.data(), sizeof code);
  return code;
}
std::uint16_t code_of_bits(const Codec& codec, std::uint32_t x) {
  return code_of(codec, std::bit_cast<float>(x));
}

class EveryCodec : public ::testing::TestWithParam<std::string> {
 protected:
  bool has(std::string_view text) const { return GetParam().find(text) != std::string::npos; }
  bool random() const { return has("stochastic"); }
  const Codec& codec() const { return *codec_; }

 private:
  std::unique_ptr<const Codec> codec_ = make_codec(GetParam());
};

TEST_P(EveryCodec, SizeIsTheSumOverTiles) {
  for (const std::size_t n : {0u, 1u, 63u, 64u, 65u, 4095u, 4096u, 4097u, 8192u, 10001u}) {
    std::size_t expected = 0;
    for (std::size_t begin = 0; begin < n; begin += kTileValues) {
      expected += codec().encoded_bytes(std::min(kTileValues, n - begin));
    }
    EXPECT_EQ(encoded_bytes(codec(), n), expected) << n;
    EXPECT_EQ(encode(codec(), testing_support::normal_vector(n)).bytes.size(), expected) << n;
  }
}

TEST_P(EveryCodec, TilesDecodeAlone) {
  if (random() || has("randk")) GTEST_SKIP() << "the tile's number is part of the key";
  const std::vector<float> x = testing_support::normal_vector(10001);
  const std::vector<float> whole = round_trip(codec(), x);
  const std::vector<float> second(x.begin() + kTileValues, x.begin() + 2 * kTileValues);
  const std::vector<float> alone = round_trip(codec(), second);
  EXPECT_TRUE(std::equal(alone.begin(), alone.end(), whole.begin() + kTileValues));
}

TEST_P(EveryCodec, DecodeAddIsDecodeThenOneAddition) {
  const std::vector<float> x = testing_support::normal_vector(5001);
  const std::vector<float> y = round_trip(codec(), x);
  std::vector<float> sum = testing_support::normal_vector(5001, 9);
  std::vector<float> expected = sum;
  for (std::size_t i = 0; i < y.size(); ++i) expected[i] += y[i];
  ASSERT_TRUE(decode_add(codec(), encode(codec(), x).bytes, sum));
  EXPECT_EQ(bits(sum), bits(expected));
}

TEST_P(EveryCodec, ASignFlipOfTheInputFlipsTheOutput) {
  if (random() || has("minmax") || has("nf4")) GTEST_SKIP() << "no symmetric code";
  if (has("1bit")) GTEST_SKIP() << "zero counts as +";
  if (has("2bit")) GTEST_SKIP() << "its bins lie about the mean as -3, -1.5, 0, 1.5 sigma";
  for (const NamedValues& input : hard_vectors(1000)) {
    std::vector<float> negated = input.x;
    for (float& value : negated) value = -value;
    std::vector<float> y = round_trip(codec(), input.x);
    for (float& value : y) value = -value;
    EXPECT_EQ(round_trip(codec(), negated), y) << input.name;
  }
}

TEST_P(EveryCodec, PowersOfTwoScaleTheOutput) {
  const std::vector<float> x = testing_support::normal_vector(3000);
  std::vector<float> scaled = x;
  for (float& value : scaled) value *= 0x1p-4f;
  std::vector<float> y = round_trip(codec(), x);
  for (float& value : y) value *= 0x1p-4f;
  // fp16 has few exponents: its smallest values of N(0,1)/16 are subnormal there.
  if (GetParam() != "fp16") {
    EXPECT_EQ(bits(round_trip(codec(), scaled)), bits(y));
  }
}

TEST_P(EveryCodec, FiniteValuesOfAnySizeDecodeToFiniteOnes) {
  for (const std::size_t n : {1u, 100u, 4097u}) {
    for (const NamedValues& input : hard_vectors(n)) {
      for (const float value : round_trip(codec(), input.x)) {
        // Two bytes have fewer exponents or digits: the largest values round to infinity.
        if (GetParam() != "fp16" && GetParam() != "bf16") {
          ASSERT_TRUE(std::isfinite(value)) << input.name << ", n = " << n;
        }
      }
    }
  }
}

TEST_P(EveryCodec, ANonFiniteValueIsNeverHidden) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    for (const std::size_t at : {0u, 99u, 4095u, 4998u}) {
      std::vector<float> x = testing_support::normal_vector(5000);
      x[at] = bad;
      std::vector<float> y(x.size());
      const auto decoded = decode(codec(), encode(codec(), x).bytes, y);
      if (decoded) {
        EXPECT_FALSE(std::isfinite(y[at])) << bad << " at " << at;
      } else {
        EXPECT_NE(decoded.error().what.find(codec().name()), std::string::npos)
            << decoded.error().what;
      }
    }
  }
}

TEST_P(EveryCodec, EncodingIsAFunctionOfValuesAndKey) {
  const std::vector<float> x = testing_support::normal_vector(3 * kTileValues);
  const EncodeKey key{.seed = 5, .worker = 3, .tile = 70};
  const std::vector<std::byte> whole = encode(codec(), x, key).bytes;
  EXPECT_EQ(whole, encode(codec(), x, key).bytes);
  // Tile 2 of the vector is tile 72 of its stream.
  std::vector<std::byte> third(codec().encoded_bytes(kTileValues));
  codec().encode(std::span(x).last(kTileValues), third,
                 {.seed = key.seed, .worker = key.worker, .tile = key.tile + 2});
  EXPECT_TRUE(std::equal(third.begin(), third.end(), whole.end() - std::ssize(third)));
}

TEST_P(EveryCodec, EncodingWritesAllOfItsRoom) {
  for (const std::size_t n : {1u, 2u, 63u, 65u, 1000u, 4095u, 4096u}) {
    const std::vector<float> x = testing_support::normal_vector(n);
    std::vector<std::byte> ones(codec().encoded_bytes(n), std::byte{0xff});
    std::vector<std::byte> zeros(ones.size());
    codec().encode(x, ones);
    codec().encode(x, zeros);
    EXPECT_EQ(ones, zeros) << n;
  }
}

TEST_P(EveryCodec, OnlyRandomCodecsDependOnTheKey) {
  const std::vector<float> x = testing_support::normal_vector(kTileValues);
  const auto other = encode(codec(), x, {.seed = 1, .worker = 0, .tile = 0}).bytes;
  EXPECT_EQ(encode(codec(), x).bytes == other, !random() && !has("randk"));
}

TEST_P(EveryCodec, AFlippedBitIsRefusedOrDecodedButNeverCrashes) {
  const std::vector<std::byte> good = encode(codec(), testing_support::normal_vector(300)).bytes;
  std::vector<float> y(300);
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::vector<std::byte> bytes = good;
    bytes[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    const bool decoded = decode(codec(), bytes, y).has_value();
    if (decoded && GetParam() != "fp32" && GetParam() != "fp16" && GetParam() != "bf16") {
      for (const float value : y) ASSERT_TRUE(std::isfinite(value)) << "bit " << bit;
    }
  }
}

TEST_P(EveryCodec, ZeroStaysZero) {
  for (const float value : round_trip(codec(), std::vector<float>(5000, 0.0f))) {
    EXPECT_EQ(value, 0.0f);
  }
}

INSTANTIATE_TEST_SUITE_P(Codecs, EveryCodec, ::testing::ValuesIn(testing_support::every_spelling()),
                         [](const auto& test) { return testing_support::test_name(test.param); });

TEST(Fp32Codec, KeepsEveryBit) {
  const std::vector<float> x = testing_support::bit_vector(10000);
  EXPECT_EQ(bits(round_trip(*make_codec("fp32"), x)), bits(x));
}

TEST(Bf16Codec, GivesTheSpecifiedCodes) {
  const auto codec = make_codec("bf16");
  EXPECT_EQ(code_of_bits(*codec, 0x3F808000), 0x3F80);  // tie to even, down
  EXPECT_EQ(code_of_bits(*codec, 0x3F818000), 0x3F82);  // tie to even, up
  EXPECT_EQ(code_of_bits(*codec, 0x3F808001), 0x3F81);
  EXPECT_EQ(code_of_bits(*codec, 0x7F7FFFFF), 0x7F80);  // overflow
  EXPECT_EQ(code_of_bits(*codec, 0x80000000), 0x8000);
  EXPECT_EQ(code_of_bits(*codec, 0x7F800001), 0x7FC0);  // a signalling NaN comes out quiet
  EXPECT_EQ(code_of_bits(*codec, 0x00000001), 0x0000);  // subnormals round like the rest
  EXPECT_EQ(code_of_bits(*codec, 0x00018000), 0x0002);
}

TEST(Fp16Codec, GivesTheIeeeCodes) {
  const auto codec = make_codec("fp16");
  EXPECT_EQ(code_of(*codec, 1.0f), 0x3C00);
  EXPECT_EQ(code_of(*codec, -2.0f), 0xC000);
  EXPECT_EQ(code_of(*codec, 65504.0f), 0x7BFF);    // largest
  EXPECT_EQ(code_of(*codec, 65519.996f), 0x7BFF);  // below the midpoint to 2^16
  EXPECT_EQ(code_of(*codec, 65520.0f), 0x7C00);    // tie to even: infinity
  EXPECT_EQ(code_of(*codec, 1e10f), 0x7C00);
  EXPECT_EQ(code_of(*codec, 0x1p-14f), 0x0400);         // smallest normal
  EXPECT_EQ(code_of(*codec, 0x1p-24f), 0x0001);         // smallest subnormal
  EXPECT_EQ(code_of(*codec, 0x1p-25f), 0x0000);         // tie to even
  EXPECT_EQ(code_of(*codec, 0x1.000002p-25f), 0x0001);  // just above it
  EXPECT_EQ(code_of(*codec, 0x1.8p-24f), 0x0002);       // tie to even, up
  EXPECT_EQ(code_of(*codec, 1.0f + 0x1p-11f), 0x3C00);  // tie to even, down
  EXPECT_EQ(code_of(*codec, 1.0f + 0x3p-11f), 0x3C02);  // tie to even, up
  EXPECT_EQ(code_of_bits(*codec, 0x7F800001), 0x7E00);  // a signalling NaN comes out quiet
}

// Independent oracle: the half values in ascending order, found by exact arithmetic.
TEST(Fp16Codec, EveryCodeDecodesToItsDefinition) {
  const auto codec = make_codec("fp16");
  for (std::uint32_t code = 0; code < 0x7C00; ++code) {
    const std::uint32_t exponent = code >> 10;
    const std::uint32_t mantissa = code & 0x3FF;
    const double expected = exponent == 0
                                ? std::ldexp(mantissa, -24)
                                : std::ldexp(1024 + mantissa, static_cast<int>(exponent) - 25);
    const auto stored = static_cast<std::uint16_t>(code);
    float value = 0;
    ASSERT_TRUE(decode(*codec, std::as_bytes(std::span(&stored, 1)), std::span(&value, 1)));
    ASSERT_EQ(static_cast<double>(value), expected) << code;
  }
}

}  // namespace
}  // namespace isthmus::this_file
