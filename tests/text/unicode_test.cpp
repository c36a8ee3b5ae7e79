// SPDX-License-Identifier: Apache-2.0
#include "text/unicode.h"

#include <gtest/gtest.h>

#include "text/byte_alphabet.h"
#include "text/grapheme_clusters.h"
#include "text/normal_forms.h"
#include "text/token_decoder.h"

namespace isthmus::this_file {
namespace {

TEST(Unicode, ClassifiesByVersion16) {
  const UnicodeTables& tables = UnicodeTables::get();
  const auto is = [&](char32_t c, unsigned wanted) { return (tables.classes(c) & wanted) != 0; };
  EXPECT_TRUE(is(U'a', kLetter));
  EXPECT_TRUE(is(0x1C89, kLetter)) << "a letter since Unicode 16";
  EXPECT_TRUE(is(0x0660, kNumber));
  EXPECT_TRUE(is(0x3000, kSpace));
  EXPECT_FALSE(is(0x200B, kSpace));
  EXPECT_TRUE(is(U'_', kWordCharacter));
  EXPECT_FALSE(is(0x10FFFF, kLetter | kNumber | kSpace | kWordCharacter));
}

TEST(Unicode, WritesAndReadsEveryCodePoint) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    append_utf8(text, c);
    ASSERT_EQ(first_invalid_utf8(text), std::string::npos);
    ASSERT_EQ(decoded_at(text, 0).value, c);
    ASSERT_EQ(decoded_before(text, text.size()).value, c);
  }
}

TEST(Unicode, FindsWhatIsNotUtf8BehindLongAscii) {
  EXPECT_EQ(first_invalid_utf8(std::string(100, 'a') + "\xff"), 100U);
  EXPECT_EQ(first_invalid_utf8("12345678\xed\xa0\x80"), 8U) << "a surrogate";
}

TEST(NormalForms, ComposeAndDecompose) {
  EXPECT_EQ(normalized("e\u0323\u0301x", NormalForm::kNfc), "\u1eb9\u0301x");
  EXPECT_EQ(normalized("e\u0301\u0323", NormalForm::kNfc), "\u1eb9\u0301") << "marks are ordered";
  EXPECT_EQ(normalized("\u1eb9", NormalForm::kNfd), "e\u0323");
  EXPECT_EQ(normalized("\ufb01\uff11", NormalForm::kNfkc), "fi1");
  EXPECT_EQ(normalized("\u1100\u1161\u11a8", NormalForm::kNfc), "\uac01");
  EXPECT_EQ(normalized("\uac01", NormalForm::kNfkd), "\u1100\u1161\u11a8");
  EXPECT_EQ(normalized("\u0958", NormalForm::kNfc), "\u0915\u093c") << "excluded from composition";
}

TEST(GraphemeClusters, EndWhereTheRulesOfUnicodeSay) {
  const auto bytes = [](std::string_view text) { return cluster_length(text, 0); };
  EXPECT_EQ(bytes("ab"), 1U);
  EXPECT_EQ(bytes("\r\nx"), 2U);
  EXPECT_EQ(bytes("\n\u0301"), 1U) << "nothing joins a control character";
  EXPECT_EQ(bytes("e\u0323\u0301x"), 5U);
  EXPECT_EQ(bytes("\u1100\u1161\u11a8\u1100"), 9U) << "a syllable of three letters";
  EXPECT_EQ(bytes("\uac01\u1161"), 3U) << "no vowel behind a trailing consonant";
  EXPECT_EQ(bytes("\U0001F1E9\U0001F1EA\U0001F1EB"), 8U) << "a flag";
  EXPECT_EQ(bytes("\u2764\ufe0f\u200d\U0001F525x"), 13U) << "pictographs with a joiner";
  EXPECT_EQ(bytes("\u2764\u200d\u200d\u2764"), 9U) << "two joiners join nothing";
  EXPECT_EQ(bytes("\u0915\u094d\u200d\u0924"), 12U) << "a conjunct";
  EXPECT_EQ(bytes("\u0915\u0301\u0924"), 5U) << "no linker";
  EXPECT_EQ(bytes("\u0600\u0661x"), 4U) << "a prefix sign";
}

TEST(ByteAlphabet, StandsForEveryByte) {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.push_back(static_cast<char>(byte));
  EXPECT_EQ(bytes_of_token(token_of_bytes(bytes)), bytes);
  EXPECT_EQ(token_of_bytes(" a"), "\u0120a");
  EXPECT_EQ(bytes_of_token("\u2581"), std::nullopt);
}

TEST(TokenDecoder, ReplacesEachBrokenPart) {
  EXPECT_EQ(lossy_utf8("a\xe2\x82z"), "a\ufffdz");
  EXPECT_EQ(lossy_utf8("\xf0\x9f\x98"), "\ufffd");
  EXPECT_EQ(lossy_utf8("\xed\xa0\x80"), "\ufffd\ufffd\ufffd");
  EXPECT_EQ(lossy_utf8("\xc0\x80\xff"), "\ufffd\ufffd\ufffd");
}

}  // namespace
}  // namespace isthmus::this_file
