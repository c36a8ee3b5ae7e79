// SPDX-License-Identifier: Apache-2.0
// What jinja2 makes of published kinds of chat template, and of expressions, statements and
// whitespace one by one (tests/text/cases/template_cases.json, written by make_template_cases.py).
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>

#include "core/base/storage.h"
#include "isthmus/errors.h"
#include "test_paths.h"
#include "text/chat/chat_template.h"
#include "text/jinja/json_values.h"
#include "text/jinja/parser.h"

namespace isthmus::this_file {
namespace {

using jinja::Value;

std::filesystem::path cases_folder() {
  return std::filesystem::path(testing_support::kTestsFolder) / "text/cases";
}

const Value& cases() {
  static const Value value = jinja::value_of_json(
      read_text(SystemStorage(), cases_folder() / "template_cases.json"), "cases");
  return value;
}

const Value& member(const Value& dict, std::string_view key) {
  static const Value none;
  const Value* const found = dict.find_text(key);
  return found == nullptr ? none : *found;
}

/// 2026-11-28 17:05:09, the "now" of the cases.
std::tm now() {
  std::tm time{};
  time.tm_year = 126;
  time.tm_mon = 10;
  time.tm_mday = 28;
  time.tm_hour = 17;
  time.tm_min = 5;
  time.tm_sec = 9;
  time.tm_yday = 331;
  time.tm_wday = 6;
  return time;
}

std::vector<std::pair<std::string, std::string>> tokens() {
  std::vector<std::pair<std::string, std::string>> tokens;
  for (const auto& [role, token] : member(cases(), "tokens").pairs()) {
    tokens.emplace_back(role.text(), token.text());
  }
  return tokens;
}

ChatRequest request_of(const Value& conversation) {
  ChatRequest request{.now = now()};
  for (const auto& [key, value] : conversation.pairs()) {
    if (key.text() == "messages") {
      request.messages = value;
    } else if (key.text() == "tools") {
      request.tools = value;
    } else if (key.text() == "add_generation_prompt") {
      request.add_generation_prompt = value.truth();
    } else {
      request.more.emplace_back(key, value);
    }
  }
  return request;
}

std::string source_of(const std::string& name) {
  if (const Value* const sources = cases().find_text("sources")) {
    return member(*sources, name).text();
  }
  return read_text(SystemStorage(), cases_folder() / "templates" / (name + ".jinja"));
}

TEST(TemplateCases, OfPublishedKinds) {
  int compared = 0;
  for (const Value& each : member(cases(), "templates").items()) {
    const std::string& name = member(each, "template").text();
    const std::string& conversation = member(each, "conversation").text();
    SCOPED_TRACE(name + ", " + conversation);
    const Value& expected = member(each, "text");
    std::optional<std::string> text;
    std::string why;
    try {
      const ChatTemplate chat(source_of(name), name + ".jinja", tokens());
      text = chat.render(request_of(member(member(cases(), "conversations"), conversation))).text;
    } catch (const SystemError& error) {
      why = error.what();
    }
    EXPECT_EQ(text.has_value(), !expected.is_none()) << why << member(each, "why").truth();
    if (text && !expected.is_none()) {
      EXPECT_EQ(*text, expected.text());
    }
    ++compared;
  }
  EXPECT_GT(compared, 200);
}

TEST(TemplateCases, OfSnippets) {
  for (const Value& each : member(cases(), "snippets").items()) {
    const std::string& source = member(each, "source").text();
    SCOPED_TRACE(source);
    const Value& expected = member(each, "text");
    std::optional<std::string> text;
    std::string why;
    try {
      text =
          jinja::render(jinja::parse_template(source), member(cases(), "variables"), {.now = now()})
              .text;
    } catch (const std::runtime_error& error) {
      why = error.what();
    }
    EXPECT_EQ(text.has_value(), !expected.is_none())
        << why << (expected.is_none() ? " gives " + text.value_or("") : "");
    if (text && !expected.is_none()) {
      EXPECT_EQ(*text, expected.text());
    }
  }
}

TEST(TemplateCases, GenerationBlocksSayWhereTheyWrote) {
  const ChatTemplate chat(source_of("qwen2_5_training"), "qwen2_5_training.jinja", tokens());
  const jinja::Rendered rendered =
      chat.render(request_of(member(member(cases(), "conversations"), "turns-without-system")));
  ASSERT_EQ(rendered.generations.size(), 2u);
  const auto text = [&](std::size_t i) {
    const auto [begin, end] = rendered.generations[i];
    return rendered.text.substr(begin, end - begin);
  };
  EXPECT_EQ(text(0), "\nb<|im_end|>\n");
  EXPECT_EQ(text(1), "\nd<|im_end|>\n");
}

}  // namespace
}  // namespace isthmus::this_file
