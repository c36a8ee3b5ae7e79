// SPDX-License-Identifier: Apache-2.0
// Conversations packed into windows for `[train] objective = "sft"`: each window of the training
// context holds whole conversations and a rest of padding, and a mark beside each token says where
// a conversation begins and what is learnt. The conversations of a source lie in windows that no
// number of workers changes, so positions are those of any other source. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/control_count.h"
#include "data/token_file.h"
#include "text/chat/conversation.h"

namespace isthmus {

/// Bits of a token's mark. Padding begins as a conversation does, and nothing of it is learnt.
inline constexpr std::uint8_t kBeginsConversation = 1;
inline constexpr std::uint8_t kLearnt = 2;

/// Of a window's marks (T,): starts (T,) := the first place of each token's conversation; targets
/// (T,) := kNoTarget where the next token is of another conversation or not learnt.
/// RETURNS: targets that are left.
std::int64_t mark_conversations(std::span<const std::uint8_t> marks,
                                std::span<std::int32_t> targets, std::span<std::int32_t> starts);
/// Targets that `mark_conversations` leaves of a window.
[[nodiscard]] std::int64_t learnt_targets(std::span<const std::uint8_t> marks);

/// What became of the conversations of a source.
struct ConversationCounts {
  std::int64_t conversations = 0;  // given out
  std::int64_t tokens = 0, learnt = 0;
  std::int64_t cut = 0;            // given out, without their ends
  std::int64_t dropped = 0;        // too long, by OverLong::kDrop
  std::int64_t without_reply = 0;  // nothing to learn within the room, be they cut or not: left out
  std::int64_t skipped = 0;        // malformed
  std::string first_skipped = {};
  ControlCount controls = {};  // of the texts of messages and tools
};

/// Windows of `context` tokens, one after another.
struct PackedRows {
  std::vector<std::uint32_t> ids;
  std::vector<std::uint8_t> marks;  // (ids.size(),)
  std::int64_t rows = 0;
};
/// Each conversation goes, in the given order, to the fullest window that has room for it, of
/// equally full ones to the first (best fit). REQUIRES: none is longer than `context`, or empty.
[[nodiscard]] PackedRows pack_rows(std::span<const EncodedConversation> conversations,
                                   std::int64_t context);

/// A source of conversations: its training windows and a token of padding, then its validation
/// windows and a token of padding, where there are such.
struct ConversationFacts {
  std::int64_t validation_tokens = 0;
  std::int64_t vocabulary = 0;  // one more than the tokenizer's largest id
  std::int64_t context = 0, training_rows = 0, validation_rows = 0;
  std::int64_t held_out = 0;  // conversations of the validation windows
  ConversationCounts counts;
};
struct PackedConversations {
  std::vector<TokenFile> files;  // as they lie; the last one has the tokens and marks of all
  ConversationFacts facts;
};
/// The last floor(n f) of the n conversations are for validation. `files` have no tokens yet.
[[nodiscard]] PackedConversations pack_conversations(
    std::vector<TokenFile> files, std::span<const EncodedConversation> conversations,
    std::int64_t context, double val_fraction);

/// Whether `format` of a file is that of packed conversations.
[[nodiscard]] bool is_conversations(std::string_view format);

/// One line on the conversations, their windows and what was left out.
[[nodiscard]] std::string conversations_text(const ConversationFacts& facts);
/// What is worth a warning: conversations that were cut or left out. Empty: nothing.
[[nodiscard]] std::string conversations_note(const ConversationFacts& facts);

}  // namespace isthmus
