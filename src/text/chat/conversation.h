// SPDX-License-Identifier: Apache-2.0
// Encodes a conversation to ids with a mask of the assistant's ids, which supervised fine-tuning
// learns. The template's {% generation %} blocks mark the assistant's text. A template without them
// is rendered up to the beginning and up to the end of each reply; the difference is the reply, up
// to its end token. Each thread has its own encoder.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "isthmus/errors.h"
#include "text/chat/chat_template.h"
#include "text/jinja/value.h"
#include "text/tokenizer.h"

namespace isthmus {

/// A line of a file: {"messages": [{"role", "content", ...}, ...], "tools": [...]}. Its other keys
/// are variables of the template, for which it is always 26 July 2024.
/// THROWS: SystemError saying what is malformed, without a place: no JSON object, no list of
/// messages, a message without a role, no reply of an assistant.
[[nodiscard]] ChatRequest conversation_of_line(std::string_view line);

struct EncodedConversation {
  std::vector<std::uint32_t> ids;
  std::vector<bool> learnt;  // (ids.size(),): true if the id belongs to a reply
};

/// A template that cannot say where replies are: the fault of no line.
class TemplateError : public SystemError {
  using SystemError::SystemError;
};

class ConversationEncoder {
 public:
  /// Borrows tokenizer and templates. end_token: the text of the token that ends a reply, or "" if
  /// unknown. with_tools: the template of conversations with tools; null: `chat`.
  ConversationEncoder(const Tokenizer& tokenizer, const ChatTemplate& chat, std::string end_token,
                      const ChatTemplate* with_tools = nullptr);

  /// A token across the border of a reply counts as part of the reply. THROWS: SystemError when the
  /// template rejects the messages; TemplateError when it has no {% generation %} and renders an
  /// earlier reply differently from a last one, so that replies cannot be found.
  [[nodiscard]] EncodedConversation encode(const ChatRequest& conversation);

 private:
  using Spans = std::vector<std::pair<std::size_t, std::size_t>>;
  [[nodiscard]] const ChatTemplate& template_of(const ChatRequest& conversation) const;
  [[nodiscard]] Spans replies_by_rendering(const ChatRequest& conversation,
                                           const std::string& text) const;
  [[nodiscard]] std::size_t end_of_reply(std::string_view text, std::size_t begin,
                                         std::size_t end) const;
  [[nodiscard]] std::pair<std::size_t, bool> ids_before(std::string_view text, std::size_t end,
                                                        const std::vector<std::uint32_t>& ids);

  const Tokenizer& tokenizer_;
  const ChatTemplate& chat_;
  const ChatTemplate& with_tools_;
  const std::string end_token_;
  TextEncoder encoder_;
};

}  // namespace isthmus
