// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <map>

#include "isthmus/codec.h"
#include "isthmus/errors.h"
#include "quant/codec_values.h"

namespace isthmus::this_file {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string refusal(std::string_view spelling) {
  try {
    (void)make_codec(spelling);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(CodecTable, NamesAreCanonicalAndReadBack) {
  EXPECT_EQ(make_codec("int8")->name(), "int8:256");
  EXPECT_EQ(make_codec("int8:32")->name(), "int8:32");
  EXPECT_EQ(make_codec("fp4")->name(), "fp4-e2m1:64");
  EXPECT_EQ(make_codec("1bit:ef:norm=l2")->name(), "1bit:1024:norm=l2:ef");
  EXPECT_EQ(make_codec("int4:rounding=nearest:scale=fp32")->name(), "int4:64");
  EXPECT_EQ(make_codec("bf16:ef")->name(), "bf16:ef");
  for (const std::string& spelling : testing_support::every_spelling()) {
    const auto codec = make_codec(spelling);
    EXPECT_EQ(make_codec(codec->name())->name(), codec->name());
  }
}

// Scales included, at the default block: what docs/internals/codecs.md says.
TEST(CodecTable, BitsPerValueAreTheDocumentedOnes) {
  const std::map<std::string, double> expected = {{"fp32", 32},
                                                  {"bf16", 16},
                                                  {"fp16", 16},
                                                  {"int8", 8.125},
                                                  {"int4", 4.5},
                                                  {"uint8-minmax", 8 + 64.0 / 4096},
                                                  {"nf4", 4.5},
                                                  {"fp4-e2m1", 4.5},
                                                  {"mxfp4", 4.25},
                                                  {"nvfp4", 4.5 + 32.0 / 4096},
                                                  {"fp4-e3m0", 4.5},
                                                  {"fp8-e4m3", 8.25},
                                                  {"fp8-e5m2", 8.25},
                                                  {"lm3", 3.125},
                                                  {"lm2", 2.125},
                                                  {"ternary", 2.125},
                                                  {"1bit", 1 + 32.0 / 1024},
                                                  {"topk", 44.0 / 32},
                                                  {"randk", 1 + 32.0 / 4096},
                                                  {"dct-topk", 44.0 / 128}};
  for (const CodecInfo& info : codecs()) {
    ASSERT_TRUE(expected.contains(info.name)) << info.name;
    EXPECT_DOUBLE_EQ(info.bits_per_value, expected.at(info.name)) << info.name;
  }
  EXPECT_EQ(codecs().size(), expected.size());
}

std::size_t blocks(std::size_t n, std::size_t block) { return (n + block - 1) / block; }

TEST(CodecTable, SizesFollowTheFormulas) {
  struct Case {
    const char* codec;
    std::size_t (*bytes)(std::size_t n);
  };
  const Case cases[] = {
      {"int8", [](std::size_t n) { return 4 * blocks(n, 256) + n; }},
      {"int8:64:scale=fp16", [](std::size_t n) { return 1 + 2 * blocks(n, 64) + n; }},
      {"int8:64:scale=e8m0", [](std::size_t n) { return blocks(n, 64) + n; }},
      {"int4", [](std::size_t n) { return 4 * blocks(n, 64) + (n + 1) / 2; }},
      {"uint8-minmax:64", [](std::size_t n) { return 8 * blocks(n, 64) + n; }},
      {"nf4", [](std::size_t n) { return 4 * blocks(n, 64) + (n + 1) / 2; }},
      {"fp4", [](std::size_t n) { return 4 * blocks(n, 64) + (n + 1) / 2; }},
      {"mxfp4", [](std::size_t n) { return blocks(n, 32) + (n + 1) / 2; }},
      {"nvfp4", [](std::size_t n) { return 4 + blocks(n, 16) + (n + 1) / 2; }},
      {"fp4-e3m0", [](std::size_t n) { return 4 * blocks(n, 64) + (n + 1) / 2; }},
      {"fp8-e4m3", [](std::size_t n) { return 4 * blocks(n, 128) + n; }},
      {"fp8-e5m2:32", [](std::size_t n) { return 4 * blocks(n, 32) + n; }},
      {"lm3", [](std::size_t n) { return 4 * blocks(n, 256) + (3 * n + 7) / 8; }},
      {"lm2", [](std::size_t n) { return 4 * blocks(n, 256) + (n + 3) / 4; }},
      {"ternary", [](std::size_t n) { return 4 * blocks(n, 256) + (n + 3) / 4; }},
      {"1bit", [](std::size_t n) { return 4 * blocks(n, 1024) + (n + 7) / 8; }},
      {"topk", [](std::size_t n) { return 4 * blocks(n, 32) + (12 * blocks(n, 32) + 7) / 8; }},
      {"topk:64:value=int8",
       [](std::size_t n) { return 4 + blocks(n, 64) + (12 * blocks(n, 64) + 7) / 8; }},
      {"topk:64:value=sign",
       [](std::size_t n) { return 4 + (blocks(n, 64) + 7) / 8 + (12 * blocks(n, 64) + 7) / 8; }},
      {"randk", [](std::size_t n) { return 4 + 4 * blocks(n, 32); }},
  };
  for (const Case& each : cases) {
    const auto codec = make_codec(each.codec);
    EXPECT_EQ(codec->encoded_bytes(0), 0u) << each.codec;
    for (std::size_t n = 1; n <= kTileValues; ++n) {
      ASSERT_EQ(codec->encoded_bytes(n), each.bytes(n)) << each.codec << ", n = " << n;
    }
  }
}

TEST(CodecTable, OnlyFp32IsLossless) {
  for (const CodecInfo& info : codecs()) {
    EXPECT_EQ(make_codec(info.name)->lossless(), info.name == "fp32");
  }
}

TEST(CodecTable, SparseCodecsSayThatTheyAre) {
  for (const std::string& spelling : testing_support::every_spelling()) {
    const bool sparse = spelling.starts_with("topk") || spelling.starts_with("randk") ||
                        spelling.starts_with("dct");
    EXPECT_EQ(make_codec(spelling)->sparse(), sparse) << spelling;
  }
}

TEST(CodecTable, ErrorFeedbackIsWhatTheSpellingSays) {
  for (const std::string& spelling : testing_support::every_spelling()) {
    EXPECT_EQ(make_codec(spelling)->error_feedback(), spelling.ends_with(":ef")) << spelling;
  }
}

TEST(CodecTable, AnUnknownNameIsRefusedWithTheListAndTheNearest) {
  EXPECT_THAT(refusal("int9"), AllOf(HasSubstr("\"int9\""), HasSubstr("fp32 bf16 fp16 int8"),
                                     HasSubstr("did you mean \"int8\"?")));
  EXPECT_THAT(refusal("zstd"), AllOf(HasSubstr("fp32"), Not(HasSubstr("did you mean"))));
  EXPECT_THAT(refusal(""), HasSubstr("there are: fp32"));
  EXPECT_THAT(refusal(std::string(100000, 'f')), HasSubstr("there are: fp32"));
}

TEST(CodecTable, AnOptionThatDoesNotApplyIsRefusedWithThoseThatDo) {
  EXPECT_THAT(refusal("fp32:"), HasSubstr("fp32 takes no option"));
  EXPECT_THAT(refusal("fp32:ef"), HasSubstr("fp32 takes no option"));
  EXPECT_THAT(refusal("bf16:32"), AllOf(HasSubstr("\"32\""), HasSubstr("bf16 takes :ef")));
  EXPECT_THAT(refusal("mxfp4:32"), HasSubstr("rounding=nearest|stochastic"));
  EXPECT_THAT(refusal("nf4:64:scale=e8m0"),
              AllOf(HasSubstr("nf4:64:scale=e8m0"), HasSubstr("scale=fp32|fp16")));
  EXPECT_THAT(refusal("int8:64:scale"), HasSubstr("scale=fp32|fp16|e8m0"));
  EXPECT_THAT(refusal("int8:64:ef=1"), HasSubstr("allowed is ef"));
  EXPECT_THAT(refusal("int8:64:ef:ef"), HasSubstr("given twice"));
  EXPECT_THAT(refusal("int8:ef:64"), HasSubstr("no option \"64\""));
  EXPECT_THAT(refusal("1bit:rounding=stochastic"), HasSubstr("norm=auto|l1|l2"));
  EXPECT_THAT(refusal("fp4:64"), HasSubstr("fp4-e2m1"));
}

TEST(CodecTable, ABlockIsAPowerOfTwoOfAtMostOneTile) {
  for (const char* spelling :
       {"int8:", "int8:0", "int8:100", "int8:8192", "int8:-32", "int8:+32", "int8: 32", "int8:32 ",
        "int8:0x20", "int8:99999999999999999999999999"}) {
    EXPECT_THAT(refusal(spelling), HasSubstr("power of two from 1 to 4096")) << spelling;
  }
  EXPECT_THAT(refusal("int8:32:32"), HasSubstr("no option \"32\""));
  EXPECT_THAT(refusal("fp4-e2m1:512"), HasSubstr("from 16 to 256"));
  EXPECT_EQ(make_codec("int8:1")->name(), "int8:1");
  EXPECT_EQ(make_codec("int8:4096")->name(), "int8:4096");
}

}  // namespace
}  // namespace isthmus::this_file
