// SPDX-License-Identifier: Apache-2.0
#include "data/tokenize/tokenize_files.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/base/hash.h"
#include "core/base/system_runtime.h"
#include "core/temporary_directory.h"
#include "data/tokenize/document_blocks.h"
#include "isthmus/errors.h"
#include "storage_faults.h"
#include "text/end_of_text.h"

namespace isthmus::this_file {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// Two lines, {"text": "ab"} and {"text": "ba"}.
constexpr std::string_view kGzipLines(
    "\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xab\x56\x2a\x49\xad\x28\x51\xb2\x52\x50\x4a\x4c\x52"
    "\xaa\xe5\xaa\x86\x73\x93\x12\x81\x5c\x00\xb1\x6a\x06\x8a\x1e\x00\x00\x00",
    41);
constexpr std::string_view kZstdLines(
    "\x28\xb5\x2f\xfd\x04\x68\xd5\x00\x00\xa0\x7b\x22\x74\x65\x78\x74\x22\x3a\x20\x22\x61\x62\x22"
    "\x7d\x0a\x62\x61\x22\x7d\x0a\x01\x00\xb2\xcd\x3a\xf0\xb3\x86\x9e",
    39);

constexpr const char* kTokenizerJson = R"({"added_tokens": [
  {"id": 6, "content": "</s>", "special": true, "normalized": false}],
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
  "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "Ċ": 3, "Ġ": 4, ".": 5},
            "merges": ["a b"]}})";

class TokenizeFiles : public testing::Test {
 protected:
  TokenizeFiles() { put("tokenizer.json", kTokenizerJson); }
  void put(const std::string& name, std::string_view text) {
    write_atomically(storage_, directory_ / name, text);
  }
  TokenizeOptions options(const std::vector<std::string>& names) {
    TokenizeOptions result{
        .files = {}, .tokenizer = directory_ / "tokenizer.json", .out = directory_ / "out"};
    for (const std::string& name : names) result.files.push_back(directory_ / name);
    return result;
  }
  TokenizeSummary run(const TokenizeOptions& with) {
    return tokenize_files(storage_, runtime_, with, {});
  }
  std::string error(const TokenizeOptions& with) {
    return message_of<Error>([&] { (void)run(with); });
  }
  std::vector<int> ids(int shard) {
    const std::string bytes =
        read_text(storage_, directory_ / fmt::format("out/shard-{:05}.bin", shard));
    std::vector<std::uint16_t> narrow(bytes.size() / 2);
    std::memcpy(narrow.data(), bytes.data(), bytes.size());
    return {narrow.begin(), narrow.end()};
  }
  bool is_there(const std::string& name) {
    return storage_.kind(directory_ / name) != FileKind::kAbsent;
  }
  TemporaryDirectory directory_;
  SystemStorage storage_;
  SystemRuntime runtime_;
};

TEST_F(TokenizeFiles, PutsTheEndOfTextBehindEachDocument) {
  put("a.txt", "ab\nba");
  put("b.jsonl", "{\"text\": \"ab\"}\n\n{\"id\": 1, \"text\": \"\"}\n{\"text\": \"b\"}");
  const TokenizeSummary summary = run(options({"a.txt", "b.jsonl"}));
  EXPECT_THAT(ids(0), ElementsAre(2, 3, 1, 0, 6));
  EXPECT_THAT(ids(1), ElementsAre(2, 6, 6, 1, 6));
  EXPECT_EQ(summary.tokens, 10);
  EXPECT_EQ(summary.documents, 4);
  EXPECT_EQ(summary.end_token, "</s>");
  EXPECT_EQ(summary.source, "tokens:" + (directory_ / "out/*.bin").string() + ":u16");
}

TEST_F(TokenizeFiles, ReadsGzipAndZstd) {
  put("a.jsonl.gz", kGzipLines);
  put("b.jsonl.zst", kZstdLines);
  (void)run(options({"a.jsonl.gz", "b.jsonl.zst"}));
  EXPECT_THAT(ids(0), ElementsAre(2, 6, 1, 0, 6));
  EXPECT_EQ(ids(1), ids(0));
}

TEST_F(TokenizeFiles, TellsWhatIsDamaged) {
  put("a.jsonl.gz", kGzipLines.substr(0, 30));
  put("b.jsonl.zst", kZstdLines.substr(0, 30));
  EXPECT_THAT(error(options({"a.jsonl.gz"})),
              AllOf(HasSubstr("a.jsonl.gz"), HasSubstr("ends in the middle")));
  EXPECT_THAT(error(options({"b.jsonl.zst"})),
              AllOf(HasSubstr("b.jsonl.zst"), HasSubstr("ends in the middle")));
  EXPECT_FALSE(is_there("out/shard-00000.bin"));
  EXPECT_FALSE(is_there("out/manifest.json"));
}

TEST_F(TokenizeFiles, NamesTheLineThatIsMalformed) {
  put("a.jsonl", "{\"text\": \"ab\"}\n\n{\"text\": 3}\n{\"text\": \"a\n{\"body\": \"b\"}\n[]\n");
  EXPECT_THAT(error(options({"a.jsonl"})),
              AllOf(HasSubstr("a.jsonl:3: "), HasSubstr("is a number"), HasSubstr("--skip-bad")));
  TokenizeOptions skipping = options({"a.jsonl"});
  skipping.skip_bad = true;
  const TokenizeSummary summary = run(skipping);
  EXPECT_EQ(summary.skipped, 4);
  EXPECT_THAT(summary.first_skipped, HasSubstr("a.jsonl:3: "));
  EXPECT_THAT(ids(0), ElementsAre(2, 6));
}

TEST_F(TokenizeFiles, TellsWhyALineIsNoJson) {
  const std::string good = "{\"text\": \"ab\"}\n";
  const auto why = [&](const std::string& line) {
    put("a.jsonl", good + line + "\n");
    return error(options({"a.jsonl"}));
  };
  EXPECT_THAT(why("{\"text\": \"a\xff\"}"), AllOf(HasSubstr("a.jsonl:2: is no JSON: column 12: "),
                                                  HasSubstr("ill-formed UTF-8")));
  EXPECT_THAT(why(R"({"text": "\ud800"})"), HasSubstr("surrogate"));
  EXPECT_THAT(why("{\"text\": \"" + std::string(100000, 'a')), Not(HasSubstr("aaaa")));
  EXPECT_THAT(why(std::string(100000, '[')), HasSubstr("a.jsonl:2: is no JSON (--skip-bad"));
}

TEST_F(TokenizeFiles, TakesAnotherField) {
  put("a.jsonl", "{\"body\": \"b\"}\n");
  EXPECT_THAT(error(options({"a.jsonl"})), AllOf(HasSubstr("fields: body"), HasSubstr("--field")));
  TokenizeOptions other = options({"a.jsonl"});
  other.field = "body";
  (void)run(other);
  EXPECT_THAT(ids(0), ElementsAre(1, 6));
}

TEST_F(TokenizeFiles, GoesOnAtTheFirstShardThatIsMissing) {
  put("a.txt", "ab");
  put("b.jsonl", "no JSON\n");
  EXPECT_THAT(error(options({"a.txt", "b.jsonl"})), HasSubstr("b.jsonl:1: is no JSON"));
  EXPECT_TRUE(is_there("out/shard-00000.bin"));
  EXPECT_FALSE(is_there("out/shard-00001.bin"));
  put("b.jsonl", "{\"text\": \"b\"}\n");
  const TokenizeSummary summary = run(options({"a.txt", "b.jsonl"}));
  EXPECT_EQ(summary.kept, 1U);
  EXPECT_EQ(summary.tokens, 4);
  const auto manifest =
      nlohmann::json::parse(read_text(storage_, directory_ / "out/manifest.json"));
  EXPECT_EQ(manifest["shards"].size(), 2U);
  EXPECT_EQ(manifest["shards"][1]["source_sha256"], sha256_hex(as_bytes("{\"text\": \"b\"}\n")));
  EXPECT_EQ(manifest["shards"][0]["sha256"],
            sha256_hex(as_bytes(read_text(storage_, directory_ / "out/shard-00000.bin"))));
  EXPECT_EQ(read_text(storage_, directory_ / "out/tokenizer.json"), kTokenizerJson);
}

TEST_F(TokenizeFiles, RefusesAFolderOfOtherSettings) {
  put("a.txt", "ab");
  (void)run(options({"a.txt"}));
  put("a.txt", "abab");
  EXPECT_THAT(error(options({"a.txt"})), AllOf(HasSubstr("source_bytes"), HasSubstr("--out")));
  put("a.txt", "ab");
  TokenizeOptions other = options({"a.txt"});
  other.end = "a";
  EXPECT_THAT(error(other), HasSubstr("was made with end = 6"));
}

TEST_F(TokenizeFiles, MakesTheSameBytesWithSeveralTasks) {
  std::string lines, text;
  for (int i = 0; i < 60'000; ++i) {
    lines += fmt::format("{{\"text\": \"{}\"}}\n", i % 3 == 0 ? "ab ab.\\n" : "ba ab");
    text += i % 7 == 0 ? "ab b.\nab" : "a ab";
  }
  for (int i = 0; i < 5; ++i) put(fmt::format("{}.jsonl", i), lines.substr(0, lines.size() - 1));
  for (int i = 0; i < 2; ++i) put(fmt::format("{}.txt", i), text + text + text + text);
  const std::vector<std::string> names{"0.jsonl", "0.txt", "1.jsonl",
                                       "2.jsonl", "1.txt", "3.jsonl"};
  TokenizeOptions one = options(names), several = options(names);
  several.jobs = 3;
  several.out = directory_ / "several";
  const TokenizeSummary summary = run(one);
  EXPECT_EQ(run(several).tokens, summary.tokens);
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::string name = fmt::format("shard-{:05}.bin", i);
    EXPECT_EQ(read_text(storage_, directory_ / ("out/" + name)),
              read_text(storage_, directory_ / ("several/" + name)));
  }
  // A text in blocks has the ids of the whole.
  const Tokenizer tokenizer = Tokenizer::open(storage_, directory_ / "tokenizer.json");
  std::vector<std::uint32_t> whole;
  TextEncoder(tokenizer).encode(text + text + text + text, {}, whole);
  whole.push_back(summary.end);
  EXPECT_EQ(ids(1), std::vector<int>(whole.begin(), whole.end()));
  DocumentBlocks blocks(directory_ / "0.txt", tokenizer);
  int count = 0;
  for (DocumentBlock block; blocks.next(block);) ++count;
  EXPECT_GT(count, 1);
}

TEST_F(TokenizeFiles, RefusesWhatHoldsNoText) {
  put("a.parquet", "PAR1" + std::string(64, '\0') + "\x20" + std::string(3, '\0') + "PAR1");
  put("b.txt", "ab\xff");
  put("c.txt", std::string_view("\xff\xfe"
                                "a\0b\0",
                                6));
  EXPECT_THAT(error(options({"a.parquet"})), HasSubstr("python -m isthmus data tokenize"));
  EXPECT_THAT(error(options({"b.txt"})), AllOf(HasSubstr("b.txt: byte 2 is not UTF-8")));
  EXPECT_THAT(error(options({"c.txt"})), HasSubstr("iconv"));
  EXPECT_THAT(error(options({"absent.txt"})), HasSubstr("absent.txt"));
  EXPECT_THAT(error(options({"b.txt", "b.txt"})), HasSubstr("named twice"));
  EXPECT_FALSE(is_there("out/tokenizer.json")) << "a refused call leaves a tokenizer";
}

TEST_F(TokenizeFiles, FinishedShardsHaveTheirTokenizer) {
  put("a.txt", "ab");
  put("b.txt", "ab\xff");
  EXPECT_THAT(error(options({"a.txt", "b.txt"})), HasSubstr("b.txt: byte 2"));
  EXPECT_TRUE(is_there("out/shard-00000.json"));
  EXPECT_TRUE(is_there("out/tokenizer.json"));
  storage_.remove(directory_ / "out/tokenizer.json");
  put("b.txt", "ab");
  EXPECT_EQ(run(options({"a.txt", "b.txt"})).kept, 1);
  EXPECT_TRUE(is_there("out/tokenizer.json"));
  storage_.remove(directory_ / "out/tokenizer.json");
  EXPECT_EQ(run(options({"a.txt", "b.txt"})).kept, 2);
  EXPECT_TRUE(is_there("out/tokenizer.json"));
}

TEST_F(TokenizeFiles, NoShardIsEverWithoutItsTokenizer) {
  put("a.txt", "ab");
  bool whole = false;
  for (std::int64_t operation = 0; !whole; ++operation) {
    storage_.remove_all(directory_ / "out");
    FaultyStorage storage(storage_, {.crash_at_operation = operation});
    try {
      (void)tokenize_files(storage, runtime_, options({"a.txt"}), {});
      whole = true;
    } catch (const SimulatedCrash& crash) {
      EXPECT_TRUE(!is_there("out/shard-00000.bin") || is_there("out/tokenizer.json")) << crash.what;
    }
  }
  EXPECT_TRUE(is_there("out/tokenizer.json"));
}

TEST_F(TokenizeFiles, FindsTheEndOfText) {
  const Tokenizer tokenizer = Tokenizer::open(storage_, directory_ / "tokenizer.json");
  const auto end = [&](const std::string& wanted) {
    return end_of_text(storage_, directory_ / "tokenizer.json", tokenizer, wanted);
  };
  EXPECT_EQ(end(""), "</s>");
  EXPECT_EQ(end("b"), "b");
  EXPECT_THAT(message_of<ConfigError>([&] { (void)end("<none>"); }), HasSubstr("--eos <none>"));
  put("tokenizer_config.json", R"({"eos_token": {"content": "a"}})");
  EXPECT_EQ(end(""), "a");
}

TEST_F(TokenizeFiles, KnowsJsonLinesByName) {
  EXPECT_TRUE(names_json_lines("a/b.jsonl"));
  EXPECT_TRUE(names_json_lines("b.jsonl.zst"));
  EXPECT_TRUE(names_json_lines("b.ndjson.gz"));
  EXPECT_FALSE(names_json_lines("b.jsonl.txt"));
  EXPECT_FALSE(names_json_lines("b.txt.gz"));
}

}  // namespace
}  // namespace isthmus::this_file
