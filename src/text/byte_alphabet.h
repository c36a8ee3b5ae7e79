// SPDX-License-Identifier: Apache-2.0
// GPT-2's alphabet: a printable character for each byte, in which byte-level tokenizers write their
// tokens. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace isthmus {

/// The character of a byte.
[[nodiscard]] char32_t character_of_byte(unsigned char byte);
/// The byte of a character; absent for characters other than those 256.
[[nodiscard]] std::optional<unsigned char> byte_of_character(char32_t character);
/// A token's bytes; absent if it has a character outside the alphabet. REQUIRES: UTF-8.
[[nodiscard]] std::optional<std::string> bytes_of_token(std::string_view token);
/// Bytes in the alphabet's characters.
[[nodiscard]] std::string token_of_bytes(std::string_view bytes);

}  // namespace isthmus
