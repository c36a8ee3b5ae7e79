// SPDX-License-Identifier: Apache-2.0
// The regular expressions by which published byte-level tokenizers split a text into words, as
// hand-written scanners. Any other regular expression in a tokenizer.json is an error. Pure; any
// thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace isthmus {

enum class WordPattern {
  kGpt2,    // 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
  kLlama3,  // (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|
            // ?[^\s\p{L}\p{N}]+[\r\n]*|...
  kQwen2,   // as kLlama3 with \p{N} for \p{N}{1,3}
  kQwen35,  // as kQwen2 with [\p{L}\p{M}]+ for \p{L}+ and \p{M} in the last class
};

/// The pattern of a regular expression in a tokenizer.json, if it is one of these.
[[nodiscard]] std::optional<WordPattern> word_pattern_of(std::string_view regular_expression);
/// The expression as a tokenizer.json has it.
[[nodiscard]] std::string_view regular_expression_of(WordPattern pattern);

/// Length of the word that begins at `at`; the words cover the text without gaps.
/// REQUIRES: `text` is UTF-8 and at < text.size() begins a code point.
[[nodiscard]] std::size_t word_length(std::string_view text, std::size_t at, WordPattern pattern);

}  // namespace isthmus
