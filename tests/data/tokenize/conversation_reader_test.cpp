// SPDX-License-Identifier: Apache-2.0
#include "data/tokenize/conversation_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "isthmus/errors.h"
#include "test_paths.h"

namespace isthmus::this_file {
namespace {

using testing::HasSubstr;

class ConversationReaderTest : public testing::Test {
 protected:
  ConversationReaderTest()
      : folder_(std::filesystem::path(testing::TempDir()) /
                testing::UnitTest::GetInstance()->current_test_info()->name()),
        tokenizer_(Tokenizer::open(storage_, std::filesystem::path(testing_support::kTestsFolder) /
                                                 "text/cases/qwen2.json")),
        chat_(
            "{% for m in messages %}{{ m.role }}: {{ m.content }}<|endoftext|>\n{% endfor %}"
            "{% if add_generation_prompt %}assistant: {% endif %}",
            "chat", {}) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~ConversationReaderTest() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path put(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
    return folder_ / name;
  }
  static std::string line(const std::string& question, const std::string& answer) {
    return R"({"messages": [{"role": "user", "content": ")" + question +
           R"("}, {"role": "assistant", "content": ")" + answer + "\"}]}\n";
  }
  ConversationCounts read(const std::vector<std::filesystem::path>& files,
                          const ConversationOptions& options) {
    ConversationReader reader(files, tokenizer_, chat_, "<|endoftext|>", options);
    sizes_.clear();
    for (EncodedConversation each; reader.next(each);) sizes_.push_back(each.ids.size());
    return reader.counts();
  }

  SystemStorage storage_;
  std::filesystem::path folder_;
  Tokenizer tokenizer_;
  ChatTemplate chat_;
  std::vector<std::size_t> sizes_;
};

TEST_F(ConversationReaderTest, CountsWhatIsCutDroppedAndLeftOut) {
  const std::string long_text(400, 'x');
  const auto file = put("a.jsonl", line("a", "b") + "\n" + line("c", long_text) +
                                       line(long_text, "late") + line("d", "e"));
  const ConversationCounts all = read({file}, {});
  EXPECT_EQ(all.conversations, 4);
  EXPECT_EQ(all.cut + all.dropped + all.without_reply + all.skipped, 0);
  const ConversationCounts cut = read({file}, {.most_tokens = 40});
  EXPECT_EQ(cut.conversations, 3);
  EXPECT_EQ(cut.cut, 1);
  EXPECT_EQ(cut.without_reply, 1);
  EXPECT_EQ(sizes_[1], 40u);
  EXPECT_LT(cut.learnt, cut.tokens);
  const ConversationCounts dropped =
      read({file}, {.most_tokens = 40, .over_long = OverLong::kDrop});
  EXPECT_EQ(dropped.conversations, 2);
  EXPECT_EQ(dropped.dropped, 2);
}

TEST_F(ConversationReaderTest, NamesMalformedLinesOrCountsThem) {
  const auto first = put("a.jsonl", line("a", "b"));
  const auto second = put("b.ndjson", line("a", "b") + "\n{\n" + line("c", "d") + "{\"x\": 1}\n");
  const auto bad = [&] { static_cast<void>(read({first, second}, {})); };
  try {
    bad();
    FAIL();
  } catch (const SystemError& error) {
    EXPECT_THAT(error.what(), HasSubstr("b.ndjson:3: "));
    EXPECT_THAT(error.what(), HasSubstr("--skip-bad"));
  }
  const ConversationCounts counts = read({first, second}, {.skip_bad = true});
  EXPECT_EQ(counts.conversations, 3);
  EXPECT_EQ(counts.skipped, 2);
  EXPECT_THAT(counts.first_skipped, HasSubstr("b.ndjson:3: "));
  EXPECT_THROW(read({put("c.txt", "")}, {}), ConfigError);
  EXPECT_EQ(read({put("empty.jsonl", "")}, {}).conversations, 0);
}

}  // namespace
}  // namespace isthmus::this_file
