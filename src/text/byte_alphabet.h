// SPDX-License-Identifier: Apache-2.0
// GPT-2's alphabet: a printable character for each byte, by which byte-level tokenizers write their
// tokens. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace isthmus {

/// The character of a byte.
[[nodiscard]] char32_t character_of_byte(unsigned char byte);
/// The byte of a character; nothing for others than those 256.
[[nodiscard]] std::optional<unsigned char> byte_of_character(char32_t character);
/// A token's bytes; nothing where it has a character that stands for none. REQUIRES: UTF-8.
[[nodiscard]] std::optional<std::string> bytes_of_token(std::string_view token);
/// Bytes as a token is written.
[[nodiscard]] std::string token_of_bytes(std::string_view bytes);

}  // namespace isthmus
