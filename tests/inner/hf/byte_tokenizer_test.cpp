// SPDX-License-Identifier: Apache-2.0
#include "inner/hf/byte_tokenizer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace isthmus::this_file {
namespace {

using nlohmann::json;

TEST(ByteTokenizer, NumbersEveryByteByGpt2sSpelling) {
  const json tokenizer = json::parse(byte_tokenizer_text(256));
  const json& vocab = tokenizer.at("model").at("vocab");
  EXPECT_EQ(vocab.size(), 256U);
  // From GPT-2's own vocabulary: space is U+0120, newline U+010A, DEL U+0121, soft hyphen U+0143.
  EXPECT_EQ(vocab.at("A"), 65);
  EXPECT_EQ(vocab.at("\u0120"), 32);
  EXPECT_EQ(vocab.at("\u010A"), 10);
  EXPECT_EQ(vocab.at("\u0121"), 127);
  EXPECT_EQ(vocab.at("\u0143"), 173);
  EXPECT_EQ(vocab.at("\u00FF"), 255);
  EXPECT_TRUE(tokenizer.at("added_tokens").empty());
  EXPECT_TRUE(tokenizer.at("model").at("merges").empty());
}

TEST(ByteTokenizer, HasAnEndOfTextOnlyWhereTheModelHasARowForIt) {
  EXPECT_EQ(json::parse(byte_tokenizer_text(257)).at("model").at("vocab").at("<|endoftext|>"), 256);
  EXPECT_EQ(json::parse(byte_tokenizer_text(257)).at("added_tokens").at(0).at("id"), 256);
  EXPECT_EQ(json::parse(byte_tokenizer_config_text(257, 8)).at("eos_token"), "<|endoftext|>");
  EXPECT_FALSE(json::parse(byte_tokenizer_config_text(256, 8)).contains("eos_token"));
}

}  // namespace
}  // namespace isthmus::this_file
