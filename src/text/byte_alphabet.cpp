// SPDX-License-Identifier: Apache-2.0
#include "text/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "text/unicode.h"

namespace isthmus {
namespace {

constexpr bool stands_for_itself(int byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

constexpr std::array<char32_t, 256> alphabet() {
  std::array<char32_t, 256> characters{};
  char32_t next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    characters[static_cast<std::size_t>(byte)] =
        stands_for_itself(byte) ? static_cast<char32_t>(byte) : next++;
  }
  return characters;
}
constexpr std::array<char32_t, 256> kAlphabet = alphabet();

constexpr std::size_t kCharacters = 256 + 68;  // the last one is U+0143
constexpr std::array<std::int16_t, kCharacters> bytes_of_characters() {
  std::array<std::int16_t, kCharacters> bytes{};
  bytes.fill(-1);
  for (std::size_t byte = 0; byte < kAlphabet.size(); ++byte) {
    bytes.at(kAlphabet[byte]) = static_cast<std::int16_t>(byte);
  }
  return bytes;
}
constexpr std::array<std::int16_t, kCharacters> kBytesOfCharacters = bytes_of_characters();

}  // namespace

char32_t character_of_byte(unsigned char byte) { return kAlphabet[byte]; }

std::optional<unsigned char> byte_of_character(char32_t character) {
  if (character >= kCharacters || kBytesOfCharacters[character] < 0) return {};
  return static_cast<unsigned char>(kBytesOfCharacters[character]);
}

std::optional<std::string> bytes_of_token(std::string_view token) {
  std::string bytes;
  for (std::size_t at = 0; at < token.size();) {
    const DecodedCharacter c = decoded_at(token, at);
    const std::optional<unsigned char> byte = byte_of_character(c.value);
    if (!byte) return {};
    bytes.push_back(static_cast<char>(*byte));
    at += c.bytes;
  }
  return bytes;
}

std::string token_of_bytes(std::string_view bytes) {
  std::string token;
  for (const char byte : bytes) append_utf8(token, kAlphabet[static_cast<unsigned char>(byte)]);
  return token;
}

}  // namespace isthmus
