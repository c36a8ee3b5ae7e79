// SPDX-License-Identifier: Apache-2.0
#include "text/chat/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "isthmus/errors.h"
#include "text/jinja/json_values.h"
#include "text/special_tokens.h"

namespace isthmus::this_file {
namespace {

using testing::HasSubstr;

class ChatTemplateTest : public testing::Test {
 protected:
  ChatTemplateTest()
      : folder_(std::filesystem::path(testing::TempDir()) /
                testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~ChatTemplateTest() override { std::filesystem::remove_all(folder_); }

  void put(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << text;
  }
  /// What the folder's template makes of one message.
  std::string rendered(const std::string& name = "", bool tools = false) {
    const auto found = chat_template_of(storage_, folder_, name, tools);
    if (!found) return "none";
    return found
        ->render({.messages = jinja::value_of_json(R"([{"role": "user", "content": "Hi"}])", "m")})
        .text;
  }

  SystemStorage storage_;
  std::filesystem::path folder_;
};

TEST_F(ChatTemplateTest, IsReadFromEachPlaceInOrder) {
  EXPECT_EQ(rendered(), "none");
  put("chat_template.json", R"({"chat_template": "old {{ messages[0].content }}"})");
  EXPECT_EQ(rendered(), "old Hi");
  put("tokenizer_config.json", R"({"bos_token": {"content": "<s>"}, "eos_token": null,
       "chat_template": "{{ bos_token }}{{ eos_token }}config {{ messages[0].content }}"})");
  EXPECT_EQ(rendered(), "<s>config Hi");
  put("special_tokens_map.json", R"({"bos_token": "<other>", "eos_token": "</s>"})");
  EXPECT_EQ(rendered(), "<s></s>config Hi");
  put("chat_template.jinja", "file {{ messages[0].content }}\n");
  EXPECT_EQ(rendered(), "file Hi");
}

TEST_F(ChatTemplateTest, MayBeOneOfSeveral) {
  put("tokenizer_config.json", R"({"chat_template": [{"name": "default", "template": "d"},
       {"name": "tool_use", "template": "t"}, {"name": "rag", "template": "r"}]})");
  EXPECT_EQ(rendered(), "d");
  EXPECT_EQ(rendered("", true), "t");
  EXPECT_EQ(rendered("rag", true), "r");
  put("chat_template.jinja", "file");
  put("additional_chat_templates/rag.jinja", "file r");
  EXPECT_EQ(rendered(), "file");
  EXPECT_EQ(rendered("", true), "file");
  EXPECT_EQ(rendered("rag"), "file r");
  try {
    rendered("other");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("no chat template \"other\"; it has default, rag"));
  }
}

TEST_F(ChatTemplateTest, SaysFileLineAndWhatIsWrong) {
  const auto wrong = [&](const std::string& text) {
    put("chat_template.jinja", text);
    try {
      return rendered();
    } catch (const SystemError& error) {
      return std::string(error.what());
    }
  };
  const std::string file = (folder_ / "chat_template.jinja").string();
  EXPECT_EQ(wrong("\n{% call x() %}"), file + ":2: {% call %} is not supported");
  EXPECT_EQ(wrong("\n\n{{ raise_exception('roles must alternate') }}"),
            file + ":3: the chat template refuses: roles must alternate");
  EXPECT_EQ(wrong("{{ messages.x.y }}"), file + ":1: 'list object' has no attribute 'x'");
  put("chat_template.jinja", "");
  std::filesystem::remove(folder_ / "chat_template.jinja");
  put("tokenizer_config.json", R"({"chat_template": [{"name": "a"}]})");
  EXPECT_THROW(rendered(), SystemError);
}

}  // namespace
}  // namespace isthmus::this_file
