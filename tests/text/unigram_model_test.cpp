// SPDX-License-Identifier: Apache-2.0
#include "text/unigram_model.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "isthmus/errors.h"

namespace isthmus::this_file {
namespace {

std::vector<std::string> pieces(const nlohmann::json& file, std::string_view word) {
  const UnigramModel model(TokenizerPart(file, "model"));
  const auto scratch = model.make_scratch();
  std::vector<std::uint32_t> ids;
  model.encode(word, *scratch, ids);
  std::vector<std::string> found;
  for (const std::uint32_t id : ids) found.push_back(*model.token_of(id));
  return found;
}

using Pieces = std::vector<std::string>;

TEST(UnigramModel, TakesTheWayOfTheLargestSum) {
  // The example in the documentation of `tokenizers`.
  const auto file = nlohmann::json::parse(R"({"unk_id": 0, "vocab": [["<unk>", 0.0], ["a", 0.0],
      ["b", 0.0], ["c", 0.0], ["d", 0.0], ["cd", 1.0], ["ab", 2.0], ["abc", 5.0], ["abcd", 10.0]]})");
  EXPECT_EQ(pieces(file, "abcdacdxx"), (Pieces{"abcd", "a", "cd", "<unk>"}));
}

TEST(UnigramModel, BreaksTiesByTheScoresThatTokenizersReads) {
  // Scores rounded to the nearest double give b aaa aaa a; those of serde_json, b a aaa aaa.
  const auto file = nlohmann::json::parse(R"({"unk_id": 0, "vocab": [["<unk>", 0.0],
      ["a", -7.5413149895629115], ["aa", -8.857402164804808], ["aaa", -7.733384423403609],
      ["b", -7.377395195732005]]})");
  EXPECT_EQ(pieces(file, "baaaaaaa"), (Pieces{"b", "a", "aaa", "aaa"}));
}

TEST(UnigramModel, RefusesACharacterWithoutAnUnknownToken) {
  const auto file = nlohmann::json::parse(R"({"unk_id": null, "vocab": [["a", -1.0]]})");
  EXPECT_EQ(pieces(file, "aa"), (Pieces{"a", "a"}));
  EXPECT_THROW((void)pieces(file, "ab"), SystemError);
}

}  // namespace
}  // namespace isthmus::this_file
