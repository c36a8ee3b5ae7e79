// SPDX-License-Identifier: Apache-2.0
#include "text/chat/conversation.h"

#include <fmt/format.h>

#include <algorithm>

#include "isthmus/errors.h"
#include "text/jinja/json_values.h"

namespace isthmus {
namespace {

using jinja::Kind;
using jinja::Value;

const std::string* role_of(const Value& message) {
  const Value* const role = message.is_dict() ? message.find_text("role") : nullptr;
  return role != nullptr && role->is_string() ? &role->text() : nullptr;
}

bool is_reply(const Value& message) { return *role_of(message) == "assistant"; }

/// 26 July 2024, which templates of Llama 3 say where no date is known: the tokens of a run do not
/// depend on the day on which they are made.
std::tm fixed_day() {
  std::tm day = {};
  day.tm_year = 124;
  day.tm_mon = 6;
  day.tm_mday = 26;
  day.tm_wday = 5;
  day.tm_yday = 207;
  return day;
}

Value first_messages(const Value& messages, std::size_t count) {
  const auto items = messages.items().first(count);
  return Value::list(jinja::Values(items.begin(), items.end()));
}

}  // namespace

ChatRequest conversation_of_line(std::string_view line) {
  const Value value = jinja::value_of_json(line, "the line");
  if (!value.is_dict()) throw SystemError("is no JSON object");
  const Value* const messages = value.find_text("messages");
  if (messages == nullptr || messages->kind() != Kind::kList) {
    throw SystemError("has no list \"messages\" of objects with \"role\" and \"content\"");
  }
  bool replies = false;
  for (const Value& message : messages->items()) {
    if (role_of(message) == nullptr) {
      throw SystemError("has a message that is no object with a text \"role\"");
    }
    replies = replies || is_reply(message);
  }
  if (!replies) throw SystemError("has no message of the role \"assistant\" to learn from");
  ChatRequest request{.messages = *messages, .now = fixed_day()};
  for (const auto& [key, item] : value.pairs()) {
    if (key.text() == "tools") {
      request.tools = item;
    } else if (key.text() != "messages" && key.text() != "add_generation_prompt") {
      request.more.emplace_back(key, item);
    }
  }
  return request;
}

ConversationEncoder::ConversationEncoder(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                         std::string end_token, const ChatTemplate* with_tools)
    : tokenizer_(tokenizer),
      chat_(chat),
      with_tools_(with_tools == nullptr ? chat : *with_tools),
      end_token_(std::move(end_token)),
      encoder_(tokenizer) {}

const ChatTemplate& ConversationEncoder::template_of(const ChatRequest& conversation) const {
  return conversation.tools.kind() == Kind::kList ? with_tools_ : chat_;
}

/// Behind the reply's end token, where nothing but whitespace follows it up to `end`.
std::size_t ConversationEncoder::end_of_reply(std::string_view text, std::size_t begin,
                                              std::size_t end) const {
  if (end_token_.empty()) return end;
  const std::string_view reply = text.substr(begin, end - begin);
  const std::size_t token = reply.rfind(end_token_);
  if (token == std::string_view::npos) return end;
  const std::size_t behind = token + end_token_.size();
  const bool blank = reply.substr(behind).find_first_not_of(" \t\r\n") == std::string_view::npos;
  return blank ? begin + behind : end;
}

ConversationEncoder::Spans ConversationEncoder::replies_by_rendering(
    const ChatRequest& conversation, const std::string& text) const {
  Spans spans;
  const ChatTemplate& chat = template_of(conversation);
  const auto messages = conversation.messages.items();
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (!is_reply(messages[i])) continue;
    ChatRequest part = conversation;
    part.messages = first_messages(conversation.messages, i);
    part.add_generation_prompt = true;
    const std::string before = chat.render(part).text;
    part.messages = first_messages(conversation.messages, i + 1);
    part.add_generation_prompt = false;
    const std::string through = chat.render(part).text;
    if (!through.starts_with(before) || !text.starts_with(through)) {
      throw TemplateError(fmt::format(
          "{}: the template has no {{% generation %}} blocks and renders message {} otherwise "
          "when others follow, so the reply cannot be found: give a template with such blocks",
          chat.label(), i + 1));
    }
    spans.emplace_back(before.size(), end_of_reply(text, before.size(), through.size()));
  }
  return spans;
}

/// How many of `ids` are those of text[0, end) alone; and whether these are all of its ids.
std::pair<std::size_t, bool> ConversationEncoder::ids_before(
    std::string_view text, std::size_t end, const std::vector<std::uint32_t>& ids) {
  std::vector<std::uint32_t> before;
  encoder_.encode(text.substr(0, end), {}, before);
  const auto same = std::ranges::mismatch(before, ids).in1 - before.begin();
  return {static_cast<std::size_t>(same), same == std::ssize(before)};
}

EncodedConversation ConversationEncoder::encode(const ChatRequest& conversation) {
  const jinja::Rendered rendered = template_of(conversation).render(conversation);
  const Spans replies = rendered.generations.empty()
                            ? replies_by_rendering(conversation, rendered.text)
                            : rendered.generations;
  EncodedConversation encoded;
  encoder_.encode(rendered.text, {}, encoded.ids);
  encoded.learnt.assign(encoded.ids.size(), false);
  for (const auto& [begin, end] : replies) {
    if (begin == end) continue;
    const std::size_t first = ids_before(rendered.text, begin, encoded.ids).first;
    const auto [same, whole] = ids_before(rendered.text, end, encoded.ids);
    const std::size_t last = std::min(same + (whole ? 0 : 1), encoded.ids.size());
    for (std::size_t i = first; i < last; ++i) encoded.learnt[i] = true;
  }
  return encoded;
}

}  // namespace isthmus
