// SPDX-License-Identifier: Apache-2.0
// Tokens that are searched in a text before all else: special tokens and others that were added to
// a vocabulary. Of two tokens at the same position the longer one counts. Immutable; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/normalizer.h"
#include "text/text_model.h"
#include "text/tokenizer_json.h"

namespace isthmus {

struct AddedToken {
  std::string content;
  std::string sought;  // the text to search: `content`, normalized if the token is matched in
                       // normalized text
  std::uint32_t id = 0;
  bool single_word = false, lstrip = false, rstrip = false, normalized = false, special = false;
};

/// Finds tokens in a text.
class TokenFinder {
 public:
  struct Stretch {
    std::size_t begin, end;
    std::optional<std::uint32_t> id;  // absent: text between tokens
  };
  TokenFinder() = default;
  /// THROWS: SystemError when two tokens have the same search text.
  TokenFinder(std::vector<AddedToken> tokens, const std::string& label);

  [[nodiscard]] bool empty() const { return tokens_.empty(); }
  /// Splits the text into stretches. If two neighbouring tokens both take the spaces between them,
  /// both stretches include the spaces, as in `tokenizers`.
  [[nodiscard]] std::vector<Stretch> stretches(std::string_view text) const;
  /// True if no token spans a newline.
  [[nodiscard]] bool parts_at_newline() const;

 private:
  [[nodiscard]] const AddedToken* token_at(std::string_view text, std::size_t at) const;

  std::vector<AddedToken> tokens_;      // by first byte, then by falling length
  std::vector<std::uint32_t> by_byte_;  // index of the first token of each first byte; 257 entries
  std::vector<bool> pairs_;             // first two bytes of tokens
};

/// All added tokens of a tokenizer.json.
class AddedTokens {
 public:
  AddedTokens() = default;
  /// THROWS: SystemError naming the token that is malformed, or has another id than `tokenizers`
  /// would assign.
  AddedTokens(const TokenizerPart& part, const TextModel& model, const Normalizer& normalizer);

  [[nodiscard]] const TokenFinder& in_raw_text() const { return raw_; }
  [[nodiscard]] const TokenFinder& in_normalized_text() const { return normalized_; }
  /// Looks up by content.
  [[nodiscard]] const AddedToken* find(std::string_view content) const;
  [[nodiscard]] const AddedToken* of_id(std::uint32_t id) const;
  [[nodiscard]] bool is_special(std::string_view content) const;
  [[nodiscard]] std::uint32_t id_bound() const { return id_bound_; }

 private:
  std::map<std::string, AddedToken, std::less<>> tokens_;
  std::map<std::uint32_t, std::string> contents_;
  TokenFinder raw_, normalized_;
  std::uint32_t id_bound_ = 0;
};

}  // namespace isthmus
