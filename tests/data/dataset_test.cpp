// SPDX-License-Identifier: Apache-2.0
#include "data/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/hash.h"
#include "core/temporary_directory.h"
#include "data/synth.h"
#include "isthmus/errors.h"

namespace isthmus::this_file {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class Datasets : public testing::Test {
 protected:
  void put(const std::string& name, const std::string& bytes) {
    storage_.create_directories((directory_ / name).parent_path());
    write_atomically(storage_, directory_ / name, bytes);
  }
  Dataset open(const std::string& source, double val_fraction = 0.1) {
    DataConfig config;
    config.source = source;
    config.val_fraction = val_fraction;
    return Dataset::open(storage_, config, directory_.path());
  }
  template <typename Error>
  std::string error(const std::string& source, double val_fraction = 0.1) {
    return message_of<Error>([&] { (void)open(source, val_fraction); });
  }
  static std::string text_of(const Dataset& data) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(data.tokens()));
    data.read(0, ids);
    return {ids.begin(), ids.end()};
  }
  TemporaryDirectory directory_;
  SystemStorage storage_;
};

TEST_F(Datasets, TakesTheBytesOfATextAndSplitsTheEndOff) {
  put("a.txt", "abcdefghijklmnopqrst\xff");
  const Dataset data = open("text:a.txt");
  EXPECT_EQ(data.tokens(), 21);
  EXPECT_EQ(data.validation_tokens(), 2);
  EXPECT_EQ(data.train_tokens(), 19);
  EXPECT_EQ(data.vocab_bound(), 256);
  std::vector<std::int32_t> last(2);
  data.read(19, last);
  EXPECT_EQ(last, (std::vector<std::int32_t>{'t', 255}));
  EXPECT_EQ(open("text:a.txt", 0).validation_tokens(), 0);
}

TEST_F(Datasets, TokenizesATextWhoseSourceNamesATokenizer) {
  put("bpe/tokenizer.json", R"({"added_tokens": [
      {"id": 300, "content": "</s>", "special": true, "normalized": false}],
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
    "model": {"type": "BPE", "vocab": {"a": 1, "b": 2, "ab": 299, "</s>": 300}, "merges": ["a b"]}})");
  put("t/1.txt", "abba");
  put("t/2.txt", "b");
  const Dataset data = open("text:t/*.txt:tokenizer=bpe", 0);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(data.tokens()));
  data.read(0, ids);
  EXPECT_EQ(ids, (std::vector<std::int32_t>{299, 2, 1, 300, 2, 300}));
  EXPECT_EQ(data.vocab_bound(), 301);
  EXPECT_FALSE(data.is_bytes());
  EXPECT_THAT(data.fingerprint().at(0).reading, HasSubstr("4 ids of u32, text by tokenizer "));
  data.check_vocabulary(301);
  EXPECT_THAT(message_of<ConfigError>([&] { data.check_vocabulary(300); }),
              AllOf(HasSubstr("model.vocab = 300"), HasSubstr("at least 301")));
  EXPECT_THAT(error<SystemError>("text:t/*.txt:tokenizer=none"), HasSubstr("none"));
  put("t/2.txt", "b\xff");
  EXPECT_THAT(error<SystemError>("text:t/*.txt:tokenizer=bpe"), HasSubstr("2.txt: byte 1"));
  put("x.jsonl", "{}");
  EXPECT_THAT(error<SystemError>("text:x.jsonl:tokenizer=bpe"), HasSubstr("isthmus data tokenize"));
}

TEST_F(Datasets, JoinsTheFilesOfAPatternInSortedOrder) {
  put("t/b.txt", "second ");
  put("t/a.txt", "first ");
  put("t/c.txt", "");
  put("t/d.txt", "last");
  put("t/sub.txt/inner", "not a file of the pattern");
  const Dataset data = open("text:t/*.txt");
  EXPECT_EQ(text_of(data), "first second last");
  std::vector<std::int32_t> across(4);
  data.read(11, across);
  EXPECT_EQ(std::string(across.begin(), across.end()), "d la");
}

TEST_F(Datasets, TakesTheFoldersOwnNameAsItIs) {
  put("run[1]*/a.txt", "bracket");
  put("run1/a.txt", "another");
  DataConfig config;
  config.source = "text:*.txt";
  EXPECT_EQ(text_of(Dataset::open(storage_, config, directory_ / "run[1]*")), "bracket");
  EXPECT_EQ(text_of(open("text:run\\[1]\\*/*.txt")), "bracket");  // escaped, as resolved files do
}

TEST_F(Datasets, TakesANameThatExistsEvenWithWildcardCharacters) {
  put("x[1].txt", "bracket");
  put("x1.txt", "plain");
  EXPECT_EQ(text_of(open("text:x[1].txt")), "bracket");
  EXPECT_EQ(text_of(open("text:" + (directory_ / "x1.txt").string())), "plain");
}

TEST_F(Datasets, CountsAMegatronPairOnceInAPattern) {
  put("m.bin", std::string("\1\0\2\0", 4));
  std::string index("MMIDIDX\0\0", 9);
  index += std::string("\1\0\0\0\0\0\0\0\x8\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\2\0\0\0", 29);
  index += std::string(8, '\0');
  put("m.idx", index);
  EXPECT_EQ(open("tokens:m.*").tokens(), 2);
  EXPECT_EQ(open("tokens:m.*").format(), "Megatron");
}

TEST_F(Datasets, NamesWhatIsWrongWithASource) {
  put("empty.txt", "");
  EXPECT_THAT(error<SystemError>("text:missing.txt"),
              AllOf(HasSubstr("data.source = \"text:missing.txt\""), HasSubstr("no file matches"),
                    HasSubstr(directory_.path().string())));
  EXPECT_THAT(error<SystemError>("text:no*.txt"), HasSubstr("no file matches"));
  EXPECT_THAT(error<SystemError>("text:empty.txt"), HasSubstr("holds no tokens"));
  EXPECT_THAT(error<SystemError>("text:."), HasSubstr("directory"));
  EXPECT_THAT(error<ConfigError>("text:"), HasSubstr("names no file"));
  EXPECT_THAT(error<ConfigError>("a.txt"), HasSubstr("must begin with \"text:\""));
  EXPECT_THAT(error<ConfigError>(""), HasSubstr("must begin with"));
  EXPECT_THAT(error<ConfigError>("synth:no"), HasSubstr("no such source"));
  put("a.txt", "abc");
  EXPECT_THAT(error<ConfigError>("text:a.txt", 1.0), HasSubstr("data.val_fraction = 1"));
  EXPECT_THAT(error<ConfigError>("text:a.txt", -0.1), HasSubstr("data.val_fraction"));
}

TEST_F(Datasets, FindsTheFirstIdOutsideTheVocabulary) {
  put("a.txt", std::string(100000, 'a') + "z" + std::string(10, 'a'));
  const Dataset data = open("text:a.txt");
  EXPECT_NO_THROW(data.check_vocabulary(256));
  EXPECT_NO_THROW(data.check_vocabulary('z' + 1));
  EXPECT_THAT(message_of<ConfigError>([&] { data.check_vocabulary('z'); }),
              AllOf(HasSubstr("model.vocab = 122"), HasSubstr("token id 122 at position 100000 of"),
                    HasSubstr("a.txt"), HasSubstr("at least 123")));
}

TEST_F(Datasets, KnowsTheEntropyOfASyntheticSource) {
  const Dataset data = open("synth:markov2:tokens=1000");
  EXPECT_EQ(data.tokens(), 1000);
  EXPECT_EQ(data.vocab_bound(), 32);
  EXPECT_EQ(data.entropy_rate(), entropy_rate_nats(parse_synth("markov2")));
  EXPECT_EQ(open("synth:markov2:tokens=1000").fingerprint(), data.fingerprint());
}

TEST_F(Datasets, FingerprintsItsFiles) {
  put("a.txt", "abc");
  const std::vector<DataFile> files = open("text:a.txt").fingerprint();
  ASSERT_EQ(files.size(), 1U);
  EXPECT_EQ(files[0].bytes, 3U);
  EXPECT_EQ(files[0].sha256, sha256_hex(as_bytes("abc")));
}

}  // namespace
}  // namespace isthmus::this_file
