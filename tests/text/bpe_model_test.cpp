// SPDX-License-Identifier: Apache-2.0
#include "text/bpe_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "core/base/rng.h"

namespace isthmus::this_file {
namespace {

/// The definition: join the leftmost pair of the earliest merge until there is none.
std::vector<std::string> naive_merges(
    std::vector<std::string> parts,
    const std::vector<std::pair<std::string, std::string>>& merges) {
  for (bool again = true; again;) {
    again = false;
    for (const auto& [left, right] : merges) {
      for (std::size_t i = 0; i + 1 < parts.size() && !again; ++i) {
        if (parts[i] != left || parts[i + 1] != right) continue;
        parts[i] += parts[i + 1];
        parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(i + 1));
        again = true;
      }
      if (again) break;
    }
  }
  return parts;
}

TEST(BpeModel, MergesWordsOfEveryLengthByTheDefinition) {
  const std::string letters = "abc";
  std::vector<std::string> tokens{"a", "b", "c"};
  std::vector<std::pair<std::string, std::string>> merges;
  const Rng rng{11, Stream::kTestData};
  std::uint64_t drawn = 0;
  const auto draw = [&](std::size_t below) {
    return static_cast<std::size_t>(rng.below(below, drawn++));
  };
  while (tokens.size() < 60) {
    const std::string left = tokens[draw(tokens.size())], right = tokens[draw(tokens.size())];
    if (left.size() + right.size() > 12 ||
        std::ranges::find(tokens, left + right) != tokens.end()) {
      continue;
    }
    tokens.push_back(left + right);
    merges.emplace_back(left, right);
  }
  nlohmann::json file = {{"type", "BPE"}, {"vocab", nlohmann::json::object()}, {"merges", merges}};
  for (std::size_t id = 0; id < tokens.size(); ++id) file["vocab"][tokens[id]] = id;
  const BpeModel model(TokenizerPart(file, "model"), true);
  const auto scratch = model.make_scratch();
  for (std::size_t length = 1; length < 130; ++length) {
    std::string word;
    std::vector<std::string> parts;
    for (std::size_t i = 0; i < length; ++i) {
      word.push_back(letters[draw(letters.size())]);
      parts.emplace_back(1, word.back());
    }
    std::vector<std::uint32_t> ids;
    model.encode(word, *scratch, ids);
    std::vector<std::string> found;
    for (const std::uint32_t id : ids) found.push_back(*model.token_of(id));
    ASSERT_EQ(found, naive_merges(parts, merges)) << word;
  }
}

}  // namespace
}  // namespace isthmus::this_file
