// SPDX-License-Identifier: Apache-2.0
// Tokens as they lie in a file or in memory: a run of little-endian integers of one width, read as
// int32 a window at a time, so that a corpus is never copied whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace isthmus {

enum class TokenType { kU8, kU16, kU32, kI32, kI64 };

[[nodiscard]] std::size_t token_bytes(TokenType type);
/// Largest id the type can hold, at most 2^31 - 1.
[[nodiscard]] std::int64_t largest_id(TokenType type);

/// Borrowed, unaligned.
struct TokenSpan {
  const std::byte* data = nullptr;
  TokenType type = TokenType::kU8;
  std::int64_t count = 0;

  /// Tokens [begin, begin + out.size()) as int32. REQUIRES: they are in [0, count).
  /// RETURNS: index in `out` of the first value that is negative or above 2^31 - 1, or -1.
  [[nodiscard]] std::int64_t read(std::int64_t begin, std::span<std::int32_t> out) const;
  /// One token, unconverted.
  [[nodiscard]] std::int64_t at(std::int64_t index) const;
};

}  // namespace isthmus
