// SPDX-License-Identifier: Apache-2.0
#include "data/tokenize/conversation_reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "isthmus/errors.h"

namespace isthmus {
namespace {

/// All texts within a value. A value of JSON is at most jinja::kMostDepth deep.
void count_controls(const jinja::Value& value, const std::string& file, std::int64_t number,
                    ControlCount& count) {
  if (value.is_string()) {
    count.add_line(value.text(), file, number);
  } else if (value.is_dict()) {
    for (const auto& [key, item] : value.pairs()) count_controls(item, file, number, count);
  } else if (value.kind() == jinja::Kind::kList) {
    for (const jinja::Value& item : value.items()) count_controls(item, file, number, count);
  }
}

}  // namespace

ConversationReader::ConversationReader(std::vector<std::filesystem::path> files,
                                       const Tokenizer& tokenizer, const ChatTemplate& chat,
                                       std::string end_token, ConversationOptions options,
                                       const ChatTemplate* with_tools)
    : files_(std::move(files)),
      tokenizer_(tokenizer),
      options_(std::move(options)),
      encoder_(tokenizer, chat, std::move(end_token), with_tools) {
  for (const std::filesystem::path& file : files_) {
    if (names_json_lines(file)) continue;
    throw ConfigError(
        fmt::format("{}: conversations are read from .jsonl and .ndjson files, also .gz and .zst",
                    file.string()));
  }
}

/// The next line that is not blank; its number is number_.
bool ConversationReader::next_line(std::string_view& line) {
  for (;;) {
    while (at_ >= block_.text.size()) {
      if (blocks_ == nullptr) {
        if (file_ == files_.size()) return false;
        blocks_ = std::make_unique<DocumentBlocks>(files_[file_], tokenizer_);
      }
      at_ = 0;
      if (blocks_->next(block_)) {
        number_ = block_.first - 1;
        continue;
      }
      block_ = {};
      blocks_.reset();
      ++file_;
    }
    const std::string_view rest = std::string_view(block_.text).substr(at_);
    line = rest.substr(0, rest.find('\n'));
    at_ += line.size() + 1;
    ++number_;
    if (line.find_first_not_of(" \t\r") != std::string_view::npos) return true;
  }
}

/// Cuts a conversation that is too long, and counts what it finds.
bool ConversationReader::takes(EncodedConversation& conversation) {
  const auto size = std::ssize(conversation.ids);
  const bool too_long = options_.most_tokens > 0 && size > options_.most_tokens;
  if (too_long && options_.over_long == OverLong::kDrop) {
    ++counts_.dropped;
    return false;
  }
  if (too_long) {
    conversation.ids.resize(static_cast<std::size_t>(options_.most_tokens));
    conversation.learnt.resize(static_cast<std::size_t>(options_.most_tokens));
  }
  // Nothing is before the first token that it could be predicted from.
  const auto learnt = conversation.learnt.empty() ? 0
                                                  : std::count(conversation.learnt.begin() + 1,
                                                               conversation.learnt.end(), true);
  if (learnt == 0) {
    ++counts_.without_reply;
    return false;
  }
  counts_.cut += too_long ? 1 : 0;
  counts_.learnt += learnt;
  counts_.tokens += std::ssize(conversation.ids);
  ++counts_.conversations;
  return true;
}

bool ConversationReader::next(EncodedConversation& conversation) {
  std::string_view line;
  while (next_line(line)) {
    try {
      const ChatRequest request = conversation_of_line(line);
      conversation = encoder_.encode(request);
      count_controls(request.messages, files_[file_].string(), number_, counts_.controls);
      count_controls(request.tools, files_[file_].string(), number_, counts_.controls);
    } catch (const SystemError& error) {
      const std::string place =
          fmt::format("{}:{}: {}", files_[file_].string(), number_, error.what());
      if (!options_.skip_bad) {
        const bool of_line = dynamic_cast<const TemplateError*>(&error) == nullptr;
        throw SystemError(
            of_line ? fmt::format("{} ({} counts such lines and goes on)", place, options_.to_skip)
                    : place);
      }
      if (counts_.skipped++ == 0) counts_.first_skipped = place;
      continue;
    }
    if (takes(conversation)) return true;
  }
  return false;
}

}  // namespace isthmus
