// SPDX-License-Identifier: Apache-2.0
// What PyPI `tokenizers` makes of the texts of tests/text/cases (written by make_cases.py there).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/base/json_input.h"
#include "core/base/storage.h"
#include "test_paths.h"
#include "text/tokenizer.h"

namespace isthmus::this_file {
namespace {

struct TokenizerCase {
  std::string text, decoded, skipped;
  std::vector<std::uint32_t> ids, special;
};

std::filesystem::path cases_folder() {
  return std::filesystem::path(testing_support::kTestsFolder) / "text/cases";
}

std::vector<TokenizerCase> cases_of(const std::string& kind) {
  std::vector<TokenizerCase> cases;
  std::istringstream lines(read_text(SystemStorage(), cases_folder() / "cases.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json value = read_json(line);
    if (value.value("tokenizer", "") != kind) continue;
    TokenizerCase& each = cases.emplace_back();
    each.text = value.at("text").get<std::string>();
    each.ids = value.at("ids").get<std::vector<std::uint32_t>>();
    each.special = value.value("special", each.ids);
    each.decoded = value.value("decoded", each.text);
    each.skipped = value.value("skipped", each.decoded);
  }
  return cases;
}

class TokenizerCases : public testing::TestWithParam<const char*> {};

TEST_P(TokenizerCases, HaveTheIdsAndTextsOfTokenizers) {
  constexpr std::size_t kFewest = 100;
  const Tokenizer tokenizer =
      Tokenizer::open(SystemStorage(), cases_folder() / fmt::format("{}.json", GetParam()));
  const std::vector<TokenizerCase> cases = cases_of(GetParam());
  ASSERT_GT(cases.size(), kFewest);
  TextEncoder encoder(tokenizer);
  for (const TokenizerCase& each : cases) {
    SCOPED_TRACE(nlohmann::json(each.text).dump());
    std::vector<std::uint32_t> ids;
    encoder.encode(each.text, {}, ids);
    EXPECT_EQ(ids, each.ids);
    ids.clear();
    encoder.encode(each.text, {.special_tokens = true}, ids);
    EXPECT_EQ(ids, each.special);
    EXPECT_EQ(tokenizer.decode(each.special, false), each.decoded);
    EXPECT_EQ(tokenizer.decode(each.special, true), each.skipped);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, TokenizerCases,
                         testing::Values("gpt2", "llama3", "qwen2", "smol", "llama2", "mistral",
                                         "gemma", "unigram", "unigram_bytes", "unigram_nmt",
                                         "roberta", "xlm_roberta", "albert", "qwen35", "bert"),
                         [](const auto& instance) { return std::string(instance.param); });

TEST_P(TokenizerCases, ATextInPartsHasTheIdsOfTheWhole) {
  const Tokenizer tokenizer =
      Tokenizer::open(SystemStorage(), cases_folder() / fmt::format("{}.json", GetParam()));
  std::string text;
  for (const TokenizerCase& each : cases_of(GetParam())) text += each.text + "line.\nAnd on";
  TextEncoder encoder(tokenizer);
  std::vector<std::uint32_t> whole, parts;
  encoder.encode(text, {}, whole);
  std::size_t cuts = 0;
  std::string_view rest = text;
  for (bool continues = false; !rest.empty(); continues = true) {
    constexpr std::size_t kStep = 41;
    std::size_t length = 0;
    for (std::size_t seen = kStep; length == 0; seen += kStep) {
      length =
          seen < rest.size() ? tokenizer.last_cut(rest.substr(0, seen)).value_or(0) : rest.size();
    }
    cuts += length < rest.size() ? 1 : 0;
    encoder.encode(rest.substr(0, length), {.continues = continues}, parts);
    rest.remove_prefix(length);
  }
  EXPECT_EQ(parts, whole);
  const std::string kind = GetParam();
  // These strip spaces, or make newlines spaces.
  const bool cannot = kind == "smol" || kind == "unigram_bytes" || kind == "unigram_nmt" ||
                      kind == "xlm_roberta" || kind == "albert" || kind == "bert";
  EXPECT_EQ(cuts > 50, !cannot) << cuts;
  EXPECT_EQ(cuts == 0, cannot) << cuts;
}

}  // namespace
}  // namespace isthmus::this_file
