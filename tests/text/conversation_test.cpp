// SPDX-License-Identifier: Apache-2.0
#include "text/chat/conversation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "isthmus/errors.h"
#include "test_paths.h"

namespace isthmus::this_file {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// ChatML without {% generation %} blocks.
constexpr const char* kPlain =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|endoftext|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
constexpr const char* kMarked =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% generation %}{% if m.role == 'assistant' %}{{ m.content }}<|endoftext|>{% endif %}"
    "{% endgeneration %}{% if m.role != 'assistant' %}{{ m.content }}<|endoftext|>{% endif %}{{ "
    "'\n' }}"
    "{% endfor %}";
constexpr const char* kConversation =
    R"({"messages": [{"role": "user", "content": "Dzień"}, {"role": "assistant", "content": "dobry 👋"},
        {"role": "user", "content": "x"}, {"role": "assistant", "content": "  the end"}]})";

class ConversationTest : public testing::Test {
 protected:
  ConversationTest()
      : tokenizer_(Tokenizer::open(storage_, std::filesystem::path(testing_support::kTestsFolder) /
                                                 "text/cases/qwen2.json")) {}

  EncodedConversation encoded(const std::string& source, const std::string& line) {
    const ChatTemplate chat(source, "chat", {});
    return ConversationEncoder(tokenizer_, chat, "<|endoftext|>")
        .encode(conversation_of_line(line));
  }
  /// The texts of neighbouring ids that are learnt.
  std::vector<std::string> learnt(const EncodedConversation& conversation) {
    std::vector<std::string> texts;
    std::vector<std::uint32_t> run;
    for (std::size_t i = 0; i <= conversation.ids.size(); ++i) {
      if (i < conversation.ids.size() && conversation.learnt[i]) {
        run.push_back(conversation.ids[i]);
      } else if (!run.empty()) {
        texts.push_back(tokenizer_.decode(run, false));
        run.clear();
      }
    }
    return texts;
  }

  SystemStorage storage_;
  Tokenizer tokenizer_;
};

TEST_F(ConversationTest, LearnsRepliesWithTheirEndTokens) {
  for (const char* const source : {kPlain, kMarked}) {
    const EncodedConversation conversation = encoded(source, kConversation);
    EXPECT_THAT(learnt(conversation),
                ElementsAre("dobry 👋<|endoftext|>", "  the end<|endoftext|>"));
    ASSERT_EQ(conversation.learnt.size(), conversation.ids.size());
    EXPECT_THAT(tokenizer_.decode(conversation.ids, false),
                HasSubstr("<|im_start|>user\nDzień<|endoftext|>\n<|im_start|>assistant\ndobry"));
  }
}

TEST_F(ConversationTest, GivesATokenOverTheBorderToTheReply) {
  // Nothing separates prompt and reply, so that their letters may be one token.
  const EncodedConversation conversation = encoded(
      "{% for m in messages %}{% generation %}{% if m.role == 'assistant' %}"
      "{{ m.content }}{% endif %}{% endgeneration %}"
      "{% if m.role != 'assistant' %}{{ m.content }}{% endif %}{% endfor %}",
      R"({"messages": [{"role": "user", "content": "th"}, {"role": "assistant",
                  "content": "e end"}, {"role": "user", "content": "ing"}]})");
  const std::string text = learnt(conversation).front();
  EXPECT_THAT(text, HasSubstr("e end"));
  EXPECT_EQ(tokenizer_.decode(conversation.ids, false), "the ending");
}

TEST_F(ConversationTest, RefusesATemplateThatHidesReplies) {
  // Earlier replies lose what is in front of "/", as thoughts are dropped by published templates.
  const std::string source =
      "{% for m in messages %}[{{ m.role }}]"
      "{{ m.content if loop.last else m.content.split('/')[-1] }}{% endfor %}"
      "{% if add_generation_prompt %}[assistant]{% endif %}";
  const std::string line =
      R"({"messages": [{"role": "assistant", "content": "a/b"}, {"role": "user", "content": "c"}]})";
  try {
    encoded(source, line);
    FAIL();
  } catch (const SystemError& error) {
    EXPECT_THAT(error.what(), HasSubstr("renders message 1 otherwise"));
  }
}

TEST_F(ConversationTest, TakesTheTemplateOfToolsForALineThatHasSome) {
  const ChatTemplate chat(kPlain, "chat", {});
  const ChatTemplate tools(std::string("tools ") + kPlain, "tools", {});
  ConversationEncoder encoder(tokenizer_, chat, "<|endoftext|>", &tools);
  const std::string messages = std::string(kConversation).substr(1);
  const auto text = [&](const std::string& line) {
    return tokenizer_.decode(encoder.encode(conversation_of_line(line)).ids, false);
  };
  EXPECT_EQ(text(R"({"tools": [{"name": "f"}], )" + messages), "tools " + text(kConversation));
}

TEST_F(ConversationTest, IgnoresAPromptThatALineAsksFor) {
  const EncodedConversation plain = encoded(kPlain, kConversation);
  for (const char* const asked : {"true", "false"}) {
    const EncodedConversation same =
        encoded(kPlain, std::string(R"({"add_generation_prompt": )") + asked + ", " +
                            std::string(kConversation).substr(1));
    EXPECT_EQ(same.ids, plain.ids);
    EXPECT_EQ(same.learnt, plain.learnt);
  }
}

TEST_F(ConversationTest, ReadsLinesAndSaysWhatIsWrong) {
  const ChatRequest request = conversation_of_line(
      R"({"tools": [{"name": "f"}], "thinking": false, "messages": [{"role": "assistant"}]})");
  EXPECT_EQ(request.tools.items().size(), 1u);
  ASSERT_EQ(request.more.size(), 1u);
  EXPECT_EQ(request.more[0].first.text(), "thinking");
  const auto wrong = [](const char* line) {
    try {
      static_cast<void>(conversation_of_line(line));
    } catch (const SystemError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(wrong("{"), HasSubstr("not valid JSON: parse error at line 1"));
  EXPECT_THAT(wrong("[]"), HasSubstr("no JSON object"));
  EXPECT_THAT(wrong(R"({"text": "x"})"), HasSubstr("no list \"messages\""));
  EXPECT_THAT(wrong(R"({"messages": ["x"]})"), HasSubstr("\"role\""));
  EXPECT_THAT(wrong(R"({"messages": [{"role": "user", "content": "x"}]})"),
              HasSubstr("no message of the role \"assistant\""));
}

}  // namespace
}  // namespace isthmus::this_file
