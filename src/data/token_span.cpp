// SPDX-License-Identifier: Apache-2.0
#include "data/token_span.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "core/base/check.h"

namespace isthmus {
namespace {

constexpr std::int64_t kLargestId = std::numeric_limits<std::int32_t>::max();

template <typename T>
std::int64_t read_as(const std::byte* from, std::span<std::int32_t> out) {
  bool fits = true;
  for (std::size_t i = 0; i < out.size(); ++i) {
    T value;
    std::memcpy(&value, from + i * sizeof(T), sizeof(T));
    out[i] = static_cast<std::int32_t>(value);
    if constexpr (sizeof(T) >= 4) {
      // As unsigned, negative values are large: one comparison finds both defects.
      fits = fits && static_cast<std::uint64_t>(value) <= static_cast<std::uint64_t>(kLargestId);
    }
  }
  if (fits) return -1;
  for (std::size_t i = 0;; ++i) {
    T value;
    std::memcpy(&value, from + i * sizeof(T), sizeof(T));
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
    case TokenType::kU16:
      return visit(std::uint16_t{});
    case TokenType::kU32:
      return visit(std::uint32_t{});
    case TokenType::kI32:
      return visit(std::int32_t{});
    case TokenType::kI64:
      break;
  }
  return visit(std::int64_t{});
}

}  // namespace

std::size_t token_bytes(TokenType type) {
  return with_type(type, [](auto zero) { return sizeof zero; });
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
    return read_as<T>(data + static_cast<std::size_t>(begin) * sizeof(T), out);
  });
}

std::int64_t TokenSpan::at(std::int64_t index) const {
  ISTHMUS_CHECK(index >= 0 && index < count, index, count);
  return with_type(type, [&](auto zero) {
    std::memcpy(&zero, data + static_cast<std::size_t>(index) * sizeof zero, sizeof zero);
    return static_cast<std::int64_t>(zero);
  });
}

}  // namespace isthmus
