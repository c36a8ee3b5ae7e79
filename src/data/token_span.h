// SPDX-License-Identifier: Apache-2.0
// Tokens in a file or in memory: integers of one width and byte order, read as int32 a window at a
// time, so that a corpus is never copied whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace isthmus {

enum class TokenType { kU8, kI8, kU16, kI16, kU32, kI32, kU64, kI64 };

[[nodiscard]] std::size_t token_bytes(TokenType type);
/// Name of a type, such as "u16".
[[nodiscard]] std::string_view token_type_name(TokenType type);
/// A width that a source may give: u8, u16, u32, i32 or i64.
[[nodiscard]] std::optional<TokenType> parse_token_width(std::string_view name);
/// Largest id the type can hold, at most 2^31 - 1.
[[nodiscard]] std::int64_t largest_id(TokenType type);

/// Borrowed, unaligned.
struct TokenSpan {
  const std::byte* data = nullptr;
  TokenType type = TokenType::kU8;
  std::int64_t count = 0;
  bool big_endian = false;

  /// Tokens [begin, begin + out.size()) as int32. REQUIRES: they are in [0, count).
  /// RETURNS: index in `out` of the first value that is negative or above 2^31 - 1, or -1.
  [[nodiscard]] std::int64_t read(std::int64_t begin, std::span<std::int32_t> out) const;
  /// One token, unconverted (values above 2^63 - 1 become negative).
  [[nodiscard]] std::int64_t at(std::int64_t index) const;
};

}  // namespace isthmus
