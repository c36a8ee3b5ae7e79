// SPDX-License-Identifier: Apache-2.0
// The chat template of a model: turns a list of messages into the text format on which the model
// was trained. Templates and variables are those of transformers' apply_chat_template. A
// ChatTemplate is immutable and may be used from any thread.
#pragma once

#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/storage.h"
#include "text/jinja/renderer.h"
#include "text/jinja/value.h"

namespace isthmus {

struct ChatRequest {
  jinja::Value messages;               // a list of dicts with "role" and "content"
  jinja::Value tools = {};             // none, or a list of JSON schemas of tools
  bool add_generation_prompt = false;  // end with the beginning of a reply
  jinja::Items more = {};              // other variables, such as ("enable_thinking", false)
  std::tm now = {};                    // for strftime_now
};

class ChatTemplate {
 public:
  /// `label` names the source. tokens: the special tokens by their roles, which become variables.
  /// THROWS: SystemError "LABEL:LINE: ..." for unsupported constructs and for invalid templates.
  ChatTemplate(std::string_view source, std::string label,
               std::vector<std::pair<std::string, std::string>> tokens);

  /// THROWS: SystemError "LABEL:LINE: ..." when the template fails or rejects these messages.
  [[nodiscard]] jinja::Rendered render(const ChatRequest& request) const;
  [[nodiscard]] const std::string& label() const { return label_; }

 private:
  std::string label_;
  std::vector<std::pair<std::string, std::string>> tokens_;
  std::shared_ptr<const jinja::Nodes> nodes_;  // shared by copies of the template
};

/// The template of a model folder, in transformers' order: chat_template.jinja, with those of
/// additional_chat_templates/ beside it; else chat_template of tokenizer_config.json, a text or a
/// list of named templates; else that of chat_template.json. name: "" means "tool_use" if there are
/// tools and such a template, else "default". RETURNS: absent if the folder has none. THROWS:
/// SystemError of a file; ConfigError for a name that the folder does not have.
[[nodiscard]] std::optional<ChatTemplate> chat_template_of(const Storage& storage,
                                                           const std::filesystem::path& folder,
                                                           const std::string& name, bool tools);

}  // namespace isthmus
