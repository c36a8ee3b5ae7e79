// SPDX-License-Identifier: Apache-2.0
#include "text/byte_level_files.h"

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

TEST(ByteTokenizer, IsKnownHoweverItIsWrittenAndTellsOthersApart) {
  for (const std::int64_t vocab : {256, 257, 50257}) {
    EXPECT_TRUE(is_byte_tokenizer(byte_tokenizer_text(vocab))) << vocab;
  }
  const json ours = json::parse(byte_tokenizer_text(257));
  EXPECT_TRUE(is_byte_tokenizer(ours.dump())) << "keys in another order, one line";
  json other = ours;
  other["model"]["merges"] = {"t h"};
  EXPECT_FALSE(is_byte_tokenizer(other.dump()));
  other = ours;
  std::swap(other["model"]["vocab"]["a"], other["model"]["vocab"]["b"]);
  EXPECT_FALSE(is_byte_tokenizer(other.dump()));
  other = ours;
  other["normalizer"] = {{"type", "Lowercase"}};
  EXPECT_FALSE(is_byte_tokenizer(other.dump()));
  other = ours;
  other["added_tokens"][0]["id"] = 0;
  EXPECT_FALSE(is_byte_tokenizer(other.dump()));
  other = ours;
  other["pre_tokenizer"]["add_prefix_space"] = true;
  EXPECT_FALSE(is_byte_tokenizer(other.dump()));
  other = ours;
  for (const json& id : {json("x"), json(256.5), json(nullptr), json::array()}) {
    other["added_tokens"][0]["id"] = id;
    EXPECT_FALSE(is_byte_tokenizer(other.dump())) << id;
  }
  EXPECT_FALSE(is_byte_tokenizer("{\"model\":" + std::string(500000, '[')));
  EXPECT_FALSE(is_byte_tokenizer("{}"));
  EXPECT_FALSE(is_byte_tokenizer("nothing"));
}

}  // namespace
}  // namespace isthmus::this_file
