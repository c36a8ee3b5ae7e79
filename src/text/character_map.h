// SPDX-License-Identifier: Apache-2.0
// The character map of SentencePiece models, which a tokenizer.json holds in its normalizer
// Precompiled: a 32-bit size, a double-array trie of so many bytes (the layout of Darts-clone), and
// replacements that end with a zero byte. A value of the trie is an offset among the replacements.
// Results are those of `tokenizers` 0.23.3. Immutable; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer_json.h"

namespace isthmus {

class CharacterMap {
 public:
  /// Reads the base64 text of "precompiled_charsmap". THROWS: SystemError for a malformed map.
  explicit CharacterMap(const TokenizerPart& part);

  /// Replaces each grapheme cluster of fewer than 6 bytes as a whole where the map has it, and
  /// otherwise each character by itself. REQUIRES: UTF-8.
  [[nodiscard]] std::string apply(std::string_view text) const;

 private:
  void read(const TokenizerPart& part, std::string_view bytes);
  /// The replacement of the shortest start of `key` that the map has: `tokenizers` takes it for all
  /// of `key`.
  [[nodiscard]] std::optional<std::string_view> replacement(std::string_view key) const;

  std::vector<std::uint32_t> units_;  // checked: no step of a search leaves them
  std::string replacements_;
  std::array<bool, 128> kept_{};  // ASCII characters that the map does not have
};

}  // namespace isthmus
