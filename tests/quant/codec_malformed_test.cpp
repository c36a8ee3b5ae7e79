// SPDX-License-Identifier: Apache-2.0
// Bytes that are no encoding are refused by name, and values that cannot be encoded never turn into
// ordinary ones in silence.
#include <gmock/gmock.h>

#include <cstring>

#include "isthmus/codec.h"
#include "quant/codec_values.h"

namespace isthmus::this_file {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::string decode_error(const Codec& codec, const std::vector<std::byte>& bytes, std::size_t n) {
  std::vector<float> out(n);
  const auto result = decode(codec, bytes, out);
  return result ? "accepted" : result.error().what;
}

TEST(MalformedBytes, EveryWrongSizeIsRefused) {
  for (const std::string& spelling : testing_support::every_spelling()) {
    const auto codec = make_codec(spelling);
    for (const std::size_t n : {0u, 1u, 100u, 4096u, 5000u}) {
      std::vector<std::byte> bytes = encode(*codec, testing_support::normal_vector(n)).bytes;
      ASSERT_EQ(decode_error(*codec, bytes, n), "accepted");
      bytes.push_back(std::byte{0});
      EXPECT_THAT(decode_error(*codec, bytes, n),
                  AllOf(HasSubstr(codec->name()), HasSubstr(std::to_string(bytes.size()))));
      if (n > 0) {
        bytes.resize(bytes.size() - 2);
        EXPECT_THAT(decode_error(*codec, bytes, n), HasSubstr("are no encoding of"))
            << spelling << ", n = " << n;
      }
    }
  }
}

TEST(MalformedBytes, ATileLongerThanATileIsRefused) {
  const auto codec = make_codec("bf16");
  std::vector<float> out(kTileValues + 1);
  const std::vector<std::byte> bytes(2 * out.size());
  const auto result = codec->decode(bytes, out);
  ASSERT_FALSE(result);
  EXPECT_THAT(result.error().what, HasSubstr("holds at most 4096"));
}

TEST(MalformedBytes, Int8RefusesImpossibleScales) {
  const auto codec = make_codec("int8:64");
  const std::vector<std::byte> good = encode(*codec, testing_support::normal_vector(5000)).bytes;
  constexpr std::size_t kSecondTile = 4096 + 64 * sizeof(float);
  for (const float scale : {kNan, -kNan, kInfinity, -kInfinity, -1.0f, -0.0f, 1e37f}) {
    std::vector<std::byte> bytes = good;
    std::memcpy(bytes.data() + kSecondTile + sizeof scale, &scale, sizeof scale);
    EXPECT_THAT(decode_error(*codec, bytes, 5000),
                AllOf(HasSubstr("tile 1"), HasSubstr("block 1"), HasSubstr("int8:64")))
        << scale;
  }
}

TEST(MalformedBytes, Int8RefusesTheCodeNoEncoderMakes) {
  const auto codec = make_codec("int8");
  std::vector<std::byte> bytes = encode(*codec, testing_support::normal_vector(300)).bytes;
  bytes.back() = std::byte{0x80};
  EXPECT_THAT(decode_error(*codec, bytes, 300), HasSubstr("no encoder makes"));
}

TEST(MalformedBytes, ARefusedTileLeavesTheSumUntouched) {
  const auto codec = make_codec("int8:64");
  std::vector<std::byte> bytes = encode(*codec, testing_support::normal_vector(300)).bytes;
  bytes.back() = std::byte{0x80};
  std::vector<float> sum(300, 1.0f);
  EXPECT_FALSE(codec->decode_add(bytes, sum));
  EXPECT_EQ(sum, std::vector<float>(300, 1.0f));
}

TEST(MalformedBytes, CodesNoEncoderMakesAreRefused) {
  struct Case {
    const char* codec;
    std::size_t n;
    unsigned last;  // byte
  };
  for (const Case& bad :
       {Case{"int4", 300, 0x80}, Case{"int4", 300, 0x08}, Case{"int4", 299, 0x10},
        Case{"fp8-e4m3", 300, 0x7F}, Case{"fp8-e4m3", 300, 0xFF}, Case{"fp8-e5m2", 300, 0x7C},
        Case{"fp8-e5m2", 300, 0xFF}, Case{"ternary", 300, 0x80}, Case{"ternary", 300, 0x02},
        Case{"ternary", 299, 0x40}, Case{"1bit", 297, 0x02}, Case{"lm3", 297, 0x08},
        Case{"mxfp4", 299, 0x10}}) {
    const auto codec = make_codec(bad.codec);
    std::vector<std::byte> bytes = encode(*codec, testing_support::normal_vector(bad.n)).bytes;
    bytes.back() = static_cast<std::byte>(bad.last);
    EXPECT_THAT(decode_error(*codec, bytes, bad.n), HasSubstr("no encoder makes")) << bad.codec;
    bytes.back() = std::byte{0};
    EXPECT_EQ(decode_error(*codec, bytes, bad.n), "accepted") << bad.codec;
  }
}

TEST(NonFiniteInput, Int8MarksTheBlockAndDecodingRefusesIt) {
  const auto codec = make_codec("int8:64");
  for (const float bad : {kNan, -kNan, kInfinity, -kInfinity}) {
    std::vector<float> x = testing_support::normal_vector(300);
    x[200] = bad;
    EXPECT_THAT(decode_error(*codec, encode(*codec, x).bytes, 300),
                AllOf(HasSubstr("block 3"), HasSubstr("not finite")))
        << bad;
  }
}

TEST(NonFiniteInput, FloatCodecsKeepNanAndInfinityAsTheyAre) {
  for (const char* spelling : {"fp32", "bf16", "fp16"}) {
    const auto codec = make_codec(spelling);
    const std::vector<float> x = {kNan, -kNan, kInfinity, -kInfinity, 1.0f};
    std::vector<float> y(x.size());
    ASSERT_TRUE(decode(*codec, encode(*codec, x).bytes, y));
    EXPECT_TRUE(std::isnan(y[0]) && std::isnan(y[1])) << spelling;
    EXPECT_FALSE(std::signbit(y[0])) << spelling;
    EXPECT_TRUE(std::signbit(y[1])) << spelling;
    EXPECT_EQ(y[2], kInfinity) << spelling;
    EXPECT_EQ(y[3], -kInfinity) << spelling;
    EXPECT_EQ(y[4], 1.0f) << spelling;
  }
}

}  // namespace
}  // namespace isthmus::this_file
