// SPDX-License-Identifier: Apache-2.0
#include "data/tokenize/train_on_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/temporary_directory.h"
#include "isthmus/errors.h"
#include "text/bpe_trainer.h"
#include "text/tokenizer.h"

namespace isthmus::this_file {
namespace {

using testing::HasSubstr;

using Merges = std::vector<std::pair<std::string, std::string>>;

TEST(BpeTrainer, JoinsTheMostFrequentPairAndOfEqualOnesTheSmallerIds) {
  WordCounts counts(WordPattern::kGpt2);
  counts.add("aab aab aab zz zz zz");
  const TrainedBpe trained = train_bpe(counts, 256 + 1 + 4, {"<end>"}, {});
  // " a", "aa", "ab" and "zz" three times, " z" too; words that begin the text have no space.
  EXPECT_EQ(trained.merges[0], (std::pair<std::string, std::string>{"a", "a"}));
  EXPECT_EQ(trained.tokens[0], "<end>");
  EXPECT_EQ(trained.tokens[1], "!");
  EXPECT_EQ(trained.tokens.size(), 261U);
  EXPECT_EQ(trained.merges.size(), 4U);
}

TEST(BpeTrainer, EndsWhereNoPairIsLeft) {
  WordCounts counts(WordPattern::kGpt2);
  counts.add("ab");
  const TrainedBpe trained = train_bpe(counts, 1000, {}, {});
  EXPECT_EQ(trained.merges, (Merges{{"a", "b"}}));
}

TEST(TrainOnFiles, WritesATokenizerThatReadsBack) {
  const TemporaryDirectory directory;
  SystemStorage storage;
  std::string text;
  for (int i = 0; i < 50; ++i)
    text += "the cat sat on the mat.\nIt's 12 o'clock; \xc3\xa9t\xc3\xa9.\n";
  write_atomically(storage, directory / "a.txt", text);
  write_atomically(storage, directory / "b.jsonl", "{\"text\": \"the end\"}\n");
  for (const char* pattern : {"gpt2", "llama3", "qwen2"}) {
    const TrainTokenizerOptions options{.files = {directory / "a.txt", directory / "b.jsonl"},
                                        .out = directory / pattern,
                                        .vocabulary = 280,
                                        .pattern = pattern};
    const TrainTokenizerSummary summary = train_tokenizer_on_files(storage, options, {});
    EXPECT_EQ(summary.vocabulary, 280);
    EXPECT_EQ(summary.documents, 2);
    const Tokenizer tokenizer = Tokenizer::open(storage, directory / pattern);
    EXPECT_EQ(tokenizer.vocabulary(), 280U);
    EXPECT_EQ(tokenizer.id_of("<|endoftext|>"), 0U);
    std::vector<std::uint32_t> ids;
    TextEncoder(tokenizer).encode("the cat \xf0\x9f\x98\x80", {}, ids);
    EXPECT_EQ(tokenizer.decode(ids, false), "the cat \xf0\x9f\x98\x80");
    EXPECT_LT(ids.size(), 10U);
    const std::string first = read_text(storage, (directory / pattern) / "tokenizer.json");
    (void)train_tokenizer_on_files(storage, options, {});
    EXPECT_EQ(read_text(storage, (directory / pattern) / "tokenizer.json"), first);
  }
}

TEST(TrainOnFiles, RefusesAVocabularyWithoutRoomForBytes) {
  SystemStorage storage;
  EXPECT_THAT(message_of<ConfigError>([&] {
                (void)train_tokenizer_on_files(storage,
                                               {.files = {}, .out = "x", .vocabulary = 200}, {});
              }),
              HasSubstr("--vocab 200: must be 257"));
}

}  // namespace
}  // namespace isthmus::this_file
