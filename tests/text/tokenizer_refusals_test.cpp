// SPDX-License-Identifier: Apache-2.0
// What a tokenizer.json may not hold is refused by name when it is read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/temporary_directory.h"
#include "isthmus/errors.h"
#include "text/tokenizer.h"

namespace isthmus::this_file {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

json small_tokenizer() {
  return json::parse(R"({"version": "1.0", "added_tokens": [
      {"id": 3, "content": "<end>", "special": true, "normalized": false}],
    "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": null,
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})");
}

std::string refusal(const json& file) {
  return message_of<SystemError>([&] { (void)Tokenizer(file.dump(), "x/tokenizer.json"); });
}

std::string refusal_with(const char* key, const char* value) {
  json file = small_tokenizer();
  file[key] = json::parse(value);
  return refusal(file);
}

TEST(TokenizerRefusals, AreNoneForASmallFile) {
  const Tokenizer tokenizer(small_tokenizer().dump(), "x");
  EXPECT_EQ(tokenizer.vocabulary(), 4U);
  EXPECT_EQ(tokenizer.id_of("<end>"), 3U);
  std::vector<std::uint32_t> ids;
  TextEncoder(tokenizer).encode("abba<end>", {}, ids);
  EXPECT_EQ(ids, (std::vector<std::uint32_t>{2, 1, 0, 3}));
}

TEST(TokenizerRefusals, NameComponentAndType) {
  EXPECT_THAT(refusal_with("normalizer", R"({"type": "ByteLevel"})"),
              AllOf(HasSubstr("x/tokenizer.json: normalizer"), HasSubstr("ByteLevel"),
                    HasSubstr("supported: NFC")));
  EXPECT_THAT(
      refusal_with("normalizer", R"({"type": "Sequence", "normalizers": [{"type": "ByteLevel"}]})"),
      HasSubstr("the normalizer ByteLevel"));
  EXPECT_THAT(refusal_with("normalizer",
                           R"({"type": "Replace", "pattern": {"Regex": "x+"}, "content": ""})"),
              HasSubstr("the regular expression x+"));
  EXPECT_THAT(refusal_with("pre_tokenizer", R"({"type": "BertPreTokenizer"})"),
              HasSubstr("the pre-tokenizer BertPreTokenizer"));
  EXPECT_THAT(refusal_with("pre_tokenizer", R"({"type": "Split", "pattern": {"Regex": "\\w+"},
                "behavior": "Isolated", "invert": false})"),
              AllOf(HasSubstr("the regular expression \\w+"), HasSubstr("Llama 3")));
  EXPECT_THAT(refusal_with("pre_tokenizer", R"({"type": "Sequence", "pretokenizers": [
                {"type": "ByteLevel"}, {"type": "Digits", "individual_digits": true}]})"),
              HasSubstr("Digits behind ByteLevel"));
  EXPECT_THAT(refusal_with("post_processor", R"({"type": "PairProcessing"})"),
              HasSubstr("the post-processor PairProcessing"));
  EXPECT_THAT(refusal_with("post_processor",
                           R"({"type": "BertProcessing", "sep": ["a", 0], "cls": ["c", 4]})"),
              HasSubstr("the id 4 of \"c\" is beyond the vocabulary of 4"));
  EXPECT_THAT(refusal_with("post_processor",
                           R"({"type": "RobertaProcessing", "sep": ["a", 0], "cls": ["c"]})"),
              HasSubstr("cls: is no pair of a token and its id"));
  EXPECT_THAT(refusal_with("decoder", R"({"type": "WordPiece"})"),
              HasSubstr("the decoder WordPiece"));
  EXPECT_THAT(refusal_with("model", R"({"type": "WordPiece", "vocab": {}})"),
              HasSubstr("the model WordPiece"));
}

TEST(TokenizerRefusals, NameTheDefectOfACharacterMap) {
  const auto refusal_of = [](const std::string& map) {
    json file = small_tokenizer();
    file["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", map}};
    return refusal(file);
  };
  EXPECT_THAT(refusal_of("AA*A"),
              HasSubstr("x/tokenizer.json: normalizer.precompiled_charsmap: is no base64"));
  EXPECT_THAT(refusal_of("AAA"), HasSubstr("is no base64"));
  EXPECT_THAT(refusal_of(""), HasSubstr("has no size of a trie"));
  EXPECT_THAT(refusal_of("AAEAAA=="), HasSubstr("its trie has 256 bytes, and 0 follow"));
  EXPECT_THAT(refusal_of("BAAAAAAAAAA="),
              HasSubstr("unit 0 of its trie points outside of 1 units"));
  // 256 units, of which the first says that a value follows.
  EXPECT_THAT(refusal_of("AAQAAAAB" + std::string(1360, 'A') + "AAA="),
              HasSubstr("names no replacement: offset 256 of 0 bytes"));
}

TEST(TokenizerRefusals, NameWhatTheModelLacks) {
  json file = small_tokenizer();
  file["model"]["dropout"] = 0.1;
  EXPECT_THAT(refusal(file), HasSubstr("dropout"));
  file = small_tokenizer();
  file["model"]["merges"] = {"a c"};
  EXPECT_THAT(refusal(file), HasSubstr("\"c\" is not in vocab"));
  file["model"]["merges"] = {"a b c"};
  EXPECT_THAT(refusal(file), HasSubstr("two tokens"));
  file = small_tokenizer();
  file["model"]["vocab"]["b"] = 0;
  EXPECT_THAT(refusal(file), HasSubstr("the same id 0"));
  file["model"]["vocab"]["b"] = 4294967296;
  EXPECT_THAT(refusal(file), HasSubstr("4294967296"));
  file = small_tokenizer();
  file["model"]["end_of_word_suffix"] = "</w>";
  EXPECT_THAT(refusal(file), HasSubstr("end_of_word_suffix"));
}

TEST(TokenizerRefusals, KeepIdsInsideTheVocabulary) {
  json file = small_tokenizer();
  file["added_tokens"][0]["id"] = 7;
  EXPECT_THAT(refusal(file), AllOf(HasSubstr("<end>"), HasSubstr("says id 7")));
  EXPECT_THAT(refusal_with("post_processor", R"({"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<end>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
      "pair": [], "special_tokens": {"<end>": {"id": "<end>", "ids": [9], "tokens": ["<end>"]}}})"),
              HasSubstr("beyond the vocabulary of 4"));
}

TEST(TokenizerRefusals, TellWhatIsNoTokenizer) {
  EXPECT_THAT(message_of<SystemError>([] { (void)Tokenizer("{", "x"); }),
              HasSubstr("not valid JSON"));
  EXPECT_THAT(message_of<SystemError>([] { (void)Tokenizer("{}", "x"); }), HasSubstr("model"));
  const TemporaryDirectory folder;
  EXPECT_THAT(
      message_of<SystemError>([&] { (void)Tokenizer::open(SystemStorage(), folder.path()); }),
      HasSubstr("has no tokenizer.json"));
}

TEST(TokenizerRefusals, TellWhereATextIsNotUtf8) {
  const Tokenizer tokenizer(small_tokenizer().dump(), "x");
  TextEncoder encoder(tokenizer);
  std::vector<std::uint32_t> ids;
  EXPECT_THAT(message_of<SystemError>([&] { encoder.encode("ab\xff", {}, ids); }),
              HasSubstr("byte 2 is not UTF-8"));
}

}  // namespace
}  // namespace isthmus::this_file
