// SPDX-License-Identifier: Apache-2.0
#include "data/npy_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "isthmus/errors.h"

namespace isthmus {
namespace {

constexpr std::string_view kMagic("\x93NUMPY", 6);

[[noreturn]] void bad_npy(const std::string& label, const std::string& defect) {
  throw SystemError(label + ": not a usable .npy file: " + defect);
}

std::string_view text_in(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// The text of the value of `key` in the header, a Python literal: from behind the colon up to the
/// comma or brace that ends it, parentheses and quotes kept whole.
std::optional<std::string_view> value_of(std::string_view header, std::string_view key) {
  std::size_t at = std::string_view::npos;
  for (const char quote : {'\'', '"'}) {
    const std::string quoted = fmt::format("{0}{1}{0}", quote, key);
    if (const std::size_t found = header.find(quoted); found != std::string_view::npos) {
      at = found + quoted.size();
    }
  }
  if (at == std::string_view::npos) return {};
  at = header.find_first_not_of(" \t", at);
  if (at == std::string_view::npos || header[at] != ':') return {};
  at = header.find_first_not_of(" \t", at + 1);
  if (at == std::string_view::npos) return {};
  int open = 0;
  std::size_t end = at;
  for (; end < header.size(); ++end) {
    const char c = header[end];
    if (open == 0 && (c == ',' || c == '}')) break;
    open += c == '(' || c == '[' ? 1 : c == ')' || c == ']' ? -1 : 0;
  }
  std::string_view value = header.substr(at, end - at);
  while (!value.empty() && (value.back() == ' ' || value.back() == '\n')) value.remove_suffix(1);
  return value;
}

std::string_view unquoted(std::string_view value) {
  const bool quoted = value.size() >= 2 && (value.front() == '\'' || value.front() == '"') &&
                      value.back() == value.front();
  return quoted ? value.substr(1, value.size() - 2) : value;
}

/// Type and byte order of a NumPy type such as "<u2"; nothing for a type that is no integer.
std::optional<TokenSpan> integer_type(std::string_view descr) {
  if (descr.size() != 3) return {};
  const char order = descr[0];
  if (order != '<' && order != '>' && order != '|' && order != '=') return {};
  constexpr std::pair<std::string_view, TokenType> kTypes[] = {
      {"u1", TokenType::kU8},  {"i1", TokenType::kI8},  {"u2", TokenType::kU16},
      {"i2", TokenType::kI16}, {"u4", TokenType::kU32}, {"i4", TokenType::kI32},
      {"u8", TokenType::kU64}, {"i8", TokenType::kI64}};
  const std::string_view type = descr.substr(1);
  const auto* const known =
      std::ranges::find(kTypes, type, [](const auto& each) { return each.first; });
  if (known == std::end(kTypes)) return {};
  TokenSpan span;
  span.type = known->second;
  span.big_endian = order == '>' && type[1] != '1';
  return span;
}

struct Shape {
  std::uint64_t values = 1;  // product of the lengths
  int long_axes = 0;         // of lengths other than 1
};

std::optional<Shape> shape_of(std::string_view text) {
  if (text.size() < 2 || text.front() != '(' || text.back() != ')') return {};
  text = text.substr(1, text.size() - 2);
  Shape shape;
  while (true) {
    const std::size_t begin = text.find_first_not_of(" ,");
    if (begin == std::string_view::npos) return shape;
    text.remove_prefix(begin);
    std::uint64_t length = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), length);
    if (error != std::errc() || length > (std::uint64_t{1} << 48)) return {};
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    if (!text.empty() && text.front() == 'L') text.remove_prefix(1);  // written by Python 2
    if (length != 0 && shape.values > (std::uint64_t{1} << 48) / length) return {};
    shape.values *= length;
    shape.long_axes += length == 1 ? 0 : 1;
  }
}

/// Where the header's text lies: behind magic, version and its own length.
std::span<const std::byte> header_of(std::span<const std::byte> bytes, const std::string& label) {
  constexpr std::size_t kVersionAt = kMagic.size();
  constexpr std::size_t kLengthAt = kVersionAt + 2;
  if (bytes.size() < kLengthAt + 4) {
    bad_npy(label, fmt::format("its header ends after {} bytes (truncated)", bytes.size()));
  }
  const auto version = static_cast<unsigned>(bytes[kVersionAt]);
  if (version < 1 || version > 3) {
    bad_npy(label, fmt::format("format version {}; 1, 2 and 3 are known", version));
  }
  std::uint32_t length = 0;
  const std::size_t width = version == 1 ? 2 : 4;
  std::memcpy(&length, bytes.data() + kLengthAt, width);
  const std::span<const std::byte> rest = bytes.subspan(kLengthAt + width);
  if (length > rest.size()) {
    bad_npy(label,
            fmt::format("its header has {} bytes, {} are there (truncated)", length, rest.size()));
  }
  return rest.first(length);
}

}  // namespace

bool is_npy(std::span<const std::byte> bytes) { return text_in(bytes).starts_with(kMagic); }

TokenSpan locate_npy_tokens(std::span<const std::byte> bytes, const std::string& label) {
  const std::span<const std::byte> header = header_of(bytes, label);
  const std::string_view text = text_in(header);
  const auto descr = value_of(text, "descr");
  const auto shape_text = value_of(text, "shape");
  const auto order = value_of(text, "fortran_order");
  if (!descr || !shape_text || !order) {
    bad_npy(label, "its header lacks 'descr', 'fortran_order' or 'shape'");
  }
  std::optional<TokenSpan> span = integer_type(unquoted(*descr));
  if (!span) {
    bad_npy(label, fmt::format("its values are {}, tokens are integers of 1, 2, 4 or 8 bytes; save "
                               "them with .astype(numpy.uint32)",
                               *descr));
  }
  const std::optional<Shape> shape = shape_of(*shape_text);
  if (!shape) bad_npy(label, fmt::format("its shape is {}", *shape_text));
  if (*order == "True" && shape->long_axes > 1) {
    bad_npy(label,
            fmt::format("its values, of shape {}, lie in Fortran's order, column after column; "
                        "save numpy.ascontiguousarray of them",
                        *shape_text));
  }
  const std::size_t begin = static_cast<std::size_t>(header.data() - bytes.data()) + header.size();
  const std::size_t room = bytes.size() - begin;
  if (shape->values * token_bytes(span->type) != room) {
    bad_npy(label, fmt::format("its header counts {} values of {} bytes, but {} bytes follow "
                               "(truncated or padded file?)",
                               shape->values, token_bytes(span->type), room));
  }
  span->data = bytes.data() + begin;
  span->count = static_cast<std::int64_t>(shape->values);
  return *span;
}

}  // namespace isthmus
