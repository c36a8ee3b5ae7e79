// SPDX-License-Identifier: Apache-2.0
// Python's str functions on UTF-8: positions count characters. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace isthmus::jinja {

/// Number of bytes of the character at `at`. REQUIRES: `text` is UTF-8, `at` begins a character.
[[nodiscard]] std::size_t character_bytes(std::string_view text, std::size_t at);
/// len(text).
[[nodiscard]] std::int64_t length(std::string_view text);
/// The byte offset of character `index`; the text's end for larger indices. index >= 0.
[[nodiscard]] std::size_t byte_of(std::string_view text, std::int64_t index);

/// str.isspace() of one character.
[[nodiscard]] bool is_space(char32_t c);
/// Number of bytes of the whitespace that begins at `at`; 0: none.
[[nodiscard]] std::size_t space_at(std::string_view text, std::size_t at);

enum class Side { kBoth, kLeft, kRight };
/// str.strip, lstrip, rstrip: whitespace, or the characters given.
[[nodiscard]] std::string_view stripped(std::string_view text, Side side,
                                        std::optional<std::string_view> characters = {});
/// str.split() by whitespace; most < 0: no limit.
[[nodiscard]] std::vector<std::string> split_at_spaces(std::string_view text, std::int64_t most);
/// str.split(separator, most), or rsplit from the right. REQUIRES: a separator that is not empty.
[[nodiscard]] std::vector<std::string> split_at(std::string_view text, std::string_view separator,
                                                std::int64_t most, bool from_right);
/// str.splitlines(keepends).
[[nodiscard]] std::vector<std::string> split_lines(std::string_view text, bool keep_ends);
/// str.replace(from, to, most); most < 0: all. THROWS: Refusal when the result is too large.
[[nodiscard]] std::string replaced(std::string_view text, std::string_view from,
                                   std::string_view to, std::int64_t most);

/// str.lower() and upper(). THROWS: Refusal for upper case of characters beyond ASCII.
[[nodiscard]] std::string lower(std::string_view text);
[[nodiscard]] std::string upper(std::string_view text);
/// str.capitalize() and title().
[[nodiscard]] std::string capitalized(std::string_view text);
[[nodiscard]] std::string titled(std::string_view text);

/// repr of a text.
[[nodiscard]] std::string repr_of_text(std::string_view text);
/// float(text) of a literal, or of a number as printed: infinity or zero beyond the range, as
/// Python has it, whatever the host's locale. REQUIRES: an optional minus, then digits, which may
/// have a point and an exponent, or "inf" or "nan".
[[nodiscard]] double float_of_literal(const std::string& text);
/// repr of a float: the shortest decimal that reads back, with an exponent outside of 1e-4 to 1e16.
[[nodiscard]] std::string float_text(double value);
/// A text as JSON writes it, with the quotes; ascii: other characters as \uXXXX.
[[nodiscard]] std::string json_text(std::string_view text, bool ascii);
/// markupsafe.escape.
[[nodiscard]] std::string html_escaped(std::string_view text);

}  // namespace isthmus::jinja
