// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "isthmus/codec.h"
#include "isthmus/errors.h"

namespace isthmus {
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
  for (const CodecInfo& info : codecs()) {
    const auto codec = make_codec(info.name);
    EXPECT_EQ(make_codec(codec->name())->name(), codec->name());
  }
}

TEST(CodecTable, BitsPerValueAreThoseOfAWholeTile) {
  for (const CodecInfo& info : codecs()) {
    const double bits =
        8.0 * static_cast<double>(make_codec(info.name)->encoded_bytes(kTileValues));
    EXPECT_DOUBLE_EQ(info.bits_per_value, bits / kTileValues) << info.name;
  }
}

TEST(CodecTable, OnlyFp32IsLosslessAndNoneIsSparse) {
  for (const CodecInfo& info : codecs()) {
    EXPECT_EQ(make_codec(info.name)->lossless(), info.name == "fp32");
    EXPECT_FALSE(make_codec(info.name)->sparse()) << info.name;
  }
}

TEST(CodecTable, AnUnknownNameIsRefusedWithTheListAndTheNearest) {
  EXPECT_THAT(refusal("int9"), AllOf(HasSubstr("\"int9\""), HasSubstr("fp32 bf16 fp16 int8"),
                                     HasSubstr("did you mean \"int8\"?")));
  EXPECT_THAT(refusal("zstd"), AllOf(HasSubstr("fp32"), Not(HasSubstr("did you mean"))));
  EXPECT_THAT(refusal(""), HasSubstr("there are: fp32"));
  EXPECT_THAT(refusal(std::string(100000, 'f')), HasSubstr("there are: fp32"));
}

TEST(CodecTable, AnOptionIsRefusedWhereThereIsNone) {
  EXPECT_THAT(refusal("bf16:32"), HasSubstr("bf16 takes no option"));
  EXPECT_THAT(refusal("fp32:"), HasSubstr("fp32 takes no option"));
}

TEST(CodecTable, ABlockIsAPowerOfTwoOfAtMostOneTile) {
  for (const char* spelling :
       {"int8:", "int8:0", "int8:100", "int8:8192", "int8:-32", "int8:+32", "int8: 32", "int8:32 ",
        "int8:0x20", "int8:32:32", "int8:99999999999999999999999999"}) {
    EXPECT_THAT(refusal(spelling), HasSubstr("power of two from 1 to 4096")) << spelling;
  }
  EXPECT_EQ(make_codec("int8:1")->name(), "int8:1");
  EXPECT_EQ(make_codec("int8:4096")->name(), "int8:4096");
}

}  // namespace
}  // namespace isthmus
