// SPDX-License-Identifier: Apache-2.0
#include "data/token_span.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <type_traits>

#include "core/base/check.h"

namespace isthmus {
namespace {

constexpr std::int64_t kLargestId = std::numeric_limits<std::int32_t>::max();

template <typename T, bool kSwap>
T load(const std::byte* from) {
  T value;
  if constexpr (kSwap) {
    std::array<std::byte, sizeof(T)> bytes;
    std::reverse_copy(from, from + sizeof(T), bytes.begin());
    std::memcpy(&value, bytes.data(), sizeof(T));
  } else {
    std::memcpy(&value, from, sizeof(T));
  }
  return value;
}

template <typename T, bool kSwap>
std::int64_t read_as(const std::byte* from, std::span<std::int32_t> out) {
  bool fits = true;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const T value = load<T, kSwap>(from + i * sizeof(T));
    out[i] = static_cast<std::int32_t>(value);
    if constexpr (sizeof(T) >= 4 || std::is_signed_v<T>) {
      // As unsigned, negative values are large: one comparison finds both defects.
      fits = fits && static_cast<std::uint64_t>(value) <= static_cast<std::uint64_t>(kLargestId);
    }
  }
  if (fits) return -1;
  for (std::size_t i = 0;; ++i) {
    const T value = load<T, kSwap>(from + i * sizeof(T));
    if (static_cast<std::uint64_t>(value) > static_cast<std::uint64_t>(kLargestId)) {
      return static_cast<std::int64_t>(i);
    }
  }
}

template <typename Visit>
auto with_type(TokenType type, const Visit& visit) {
  switch (type) {
    case TokenType::kU8:
      return visit(std::uint8_t{});
    case TokenType::kI8:
      return visit(std::int8_t{});
    case TokenType::kU16:
      return visit(std::uint16_t{});
    case TokenType::kI16:
      return visit(std::int16_t{});
    case TokenType::kU32:
      return visit(std::uint32_t{});
    case TokenType::kI32:
      return visit(std::int32_t{});
    case TokenType::kU64:
      return visit(std::uint64_t{});
    case TokenType::kI64:
      break;
  }
  return visit(std::int64_t{});
}

}  // namespace

std::size_t token_bytes(TokenType type) {
  return with_type(type, [](auto zero) { return sizeof zero; });
}

std::string_view token_type_name(TokenType type) {
  constexpr std::array<std::string_view, 8> kNames = {"u8",  "i8",  "u16", "i16",
                                                      "u32", "i32", "u64", "i64"};
  return kNames[static_cast<std::size_t>(type)];
}

std::optional<TokenType> parse_token_width(std::string_view name) {
  for (const TokenType type :
       {TokenType::kU8, TokenType::kU16, TokenType::kU32, TokenType::kI32, TokenType::kI64}) {
    if (name == token_type_name(type)) return type;
  }
  return {};
}

std::int64_t largest_id(TokenType type) {
  return with_type(type, [](auto zero) {
    using T = decltype(zero);
    constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<T>::max());
    return static_cast<std::int64_t>(std::min(kMax, static_cast<std::uint64_t>(kLargestId)));
  });
}

std::int64_t TokenSpan::read(std::int64_t begin, std::span<std::int32_t> out) const {
  const auto n = static_cast<std::int64_t>(out.size());
  ISTHMUS_CHECK(begin >= 0 && n <= count && begin <= count - n, begin, n, count);
  return with_type(type, [&](auto zero) {
    using T = decltype(zero);
    const std::byte* const from = data + static_cast<std::size_t>(begin) * sizeof(T);
    return big_endian ? read_as<T, true>(from, out) : read_as<T, false>(from, out);
  });
}

std::int64_t TokenSpan::at(std::int64_t index) const {
  ISTHMUS_CHECK(index >= 0 && index < count, index, count);
  return with_type(type, [&](auto zero) {
    using T = decltype(zero);
    const std::byte* const from = data + static_cast<std::size_t>(index) * sizeof(T);
    return static_cast<std::int64_t>(big_endian ? load<T, true>(from) : load<T, false>(from));
  });
}

}  // namespace isthmus
