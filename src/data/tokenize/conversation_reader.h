// SPDX-License-Identifier: Apache-2.0
// Conversations of .jsonl files (plain, gzip or zstd), one a line, as ids with a mask of the ids to
// learn. Files are read piece by piece. Conversations that do not fit or are malformed are counted,
// so that a run can report them before it begins. Belongs to one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/packed_rows.h"
#include "data/tokenize/document_blocks.h"
#include "text/chat/conversation.h"

namespace isthmus {

/// Treatment of a conversation with more than most_tokens tokens.
enum class OverLong {
  kCut,  // keep its first tokens
  kDrop
};

struct ConversationOptions {
  std::int64_t most_tokens = 0;  // of a conversation; 0: any number
  OverLong over_long = OverLong::kCut;
  bool skip_bad = false;  // count lines that are malformed or rejected by the template, and
                          // continue
  std::string to_skip = "--skip-bad";  // the remedy that errors name
};

class ConversationReader {
 public:
  /// Borrows tokenizer and templates. end_token, with_tools: as for ConversationEncoder.
  ConversationReader(std::vector<std::filesystem::path> files, const Tokenizer& tokenizer,
                     const ChatTemplate& chat, std::string end_token, ConversationOptions options,
                     const ChatTemplate* with_tools = nullptr);

  /// Reads the next conversation; false at the end. Blocks. THROWS: SystemError of a file, and
  /// "FILE:LINE: ..." without skip_bad, for a malformed line or a template that cannot find
  /// replies.
  [[nodiscard]] bool next(EncodedConversation& conversation);
  [[nodiscard]] const ConversationCounts& counts() const { return counts_; }

 private:
  [[nodiscard]] bool next_line(std::string_view& line);
  [[nodiscard]] bool takes(EncodedConversation& conversation);

  const std::vector<std::filesystem::path> files_;
  const Tokenizer& tokenizer_;
  const ConversationOptions options_;
  ConversationEncoder encoder_;
  ConversationCounts counts_;
  std::size_t file_ = 0;  // that is read
  std::unique_ptr<DocumentBlocks> blocks_;
  DocumentBlock block_;
  std::size_t at_ = 0;       // of block_.text
  std::int64_t number_ = 0;  // of the line
};

}  // namespace isthmus
