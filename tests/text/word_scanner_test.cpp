// SPDX-License-Identifier: Apache-2.0
#include "text/word_scanner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace isthmus::this_file {
namespace {

using testing::ElementsAre;

std::vector<std::string> words(std::string_view text, WordPattern pattern) {
  std::vector<std::string> found;
  for (std::size_t at = 0; at < text.size(); at += found.back().size()) {
    found.emplace_back(text.substr(at, word_length(text, at, pattern)));
  }
  return found;
}

TEST(WordScanner, CutsAsTheExpressionOfGpt2) {
  EXPECT_THAT(
      words("I'll say it's 3.14  now\n\n x", WordPattern::kGpt2),
      ElementsAre("I", "'ll", " say", " it", "'s", " 3", ".", "14", " ", " now", "\n\n", " x"));
  EXPECT_THAT(words("IT'S  ", WordPattern::kGpt2), ElementsAre("IT", "'", "S", "  "));
}

TEST(WordScanner, CutsAsTheExpressionOfLlama3) {
  EXPECT_THAT(words("IT'S 1234 (x)\n\n \ty;\n", WordPattern::kLlama3),
              ElementsAre("IT", "'S", " ", "123", "4", " (", "x", ")\n\n", " ", "\ty", ";\n"));
  EXPECT_THAT(words("a  \n  b", WordPattern::kLlama3), ElementsAre("a", "  \n", " ", " b"));
}

TEST(WordScanner, CutsEachDigitForQwen2) {
  EXPECT_THAT(words("1234", WordPattern::kQwen2), ElementsAre("1", "2", "3", "4"));
}

TEST(WordScanner, KeepsMarksInWordsForQwen35) {
  EXPECT_THAT(words("e\u0301a -\u0301b 1\u0301", WordPattern::kQwen35),
              ElementsAre("e\u0301a", " -", "\u0301b", " ", "1", "\u0301"));
  EXPECT_THAT(words("e\u0301a", WordPattern::kQwen2), ElementsAre("e", "\u0301a"));
}

TEST(WordScanner, FoldsTheLongSWhereCaseIsIgnored) {
  EXPECT_THAT(words("'\u017fx", WordPattern::kLlama3), ElementsAre("'\u017f", "x"));
  EXPECT_THAT(words("'\u017fx", WordPattern::kGpt2), ElementsAre("'", "\u017fx"));
}

TEST(WordScanner, KnowsItsExpressionsAndNoOthers) {
  for (const WordPattern pattern :
       {WordPattern::kGpt2, WordPattern::kLlama3, WordPattern::kQwen2, WordPattern::kQwen35}) {
    EXPECT_EQ(word_pattern_of(regular_expression_of(pattern)), pattern);
  }
  EXPECT_EQ(word_pattern_of(R"(\s+|\S+)"), std::nullopt);
}

}  // namespace
}  // namespace isthmus::this_file
