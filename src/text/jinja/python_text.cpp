// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/python_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja/value.h"
#include "text/unicode.h"

namespace isthmus::jinja {
namespace {

bool is_line_end(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

bool is_ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
char ascii_lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }
char ascii_upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; }

void check_ascii(std::string_view text, const char* what) {
  if (is_ascii(text)) return;
  throw Refusal(fmt::format("{} of characters beyond ASCII is not supported", what));
}

/// Characters beyond ASCII that repr writes as escapes: controls, separators, invisible ones.
bool is_printable(char32_t c) {
  if (c < 0xA0) return c >= 0x20 && c != 0x7F && c < 0x7F;
  const bool invisible = c == 0xAD || c == 0x61C || c == 0x180E || (c >= 0x200B && c <= 0x200F) ||
                         (c >= 0x202A && c <= 0x202E) || (c >= 0x2060 && c <= 0x206F) ||
                         c == 0xFEFF || (c >= 0xFFF9 && c <= 0xFFFB) ||
                         (c >= 0xE000 && c <= 0xF8FF) || (c >= 0xE0000 && c <= 0xE007F) ||
                         c >= 0xF0000;
  return !invisible && !is_space(c) && c != 0x2028 && c != 0x2029;
}

std::string escape_of(char32_t c) {
  const auto value = static_cast<std::uint32_t>(c);
  if (c < 0x100) return fmt::format("\\x{:02x}", value);
  return c < 0x10000 ? fmt::format("\\u{:04x}", value) : fmt::format("\\U{:08x}", value);
}

}  // namespace

std::size_t character_bytes(std::string_view text, std::size_t at) {
  return decoded_at(text, at).bytes;
}

std::int64_t length(std::string_view text) {
  return std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; });
}

std::size_t byte_of(std::string_view text, std::int64_t index) {
  std::size_t at = 0;
  for (; index > 0 && at < text.size(); --index) at += character_bytes(text, at);
  return at;
}

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

std::size_t space_at(std::string_view text, std::size_t at) {
  if (at >= text.size()) return 0;
  const DecodedCharacter c = decoded_at(text, at);
  return is_space(c.value) ? c.bytes : 0;
}

std::string_view stripped(std::string_view text, Side side,
                          std::optional<std::string_view> characters) {
  const auto goes = [&](DecodedCharacter c, std::size_t at) {
    if (!characters) return is_space(c.value);
    // UTF-8 characters are found as their bytes: none begins inside another.
    return characters->find(text.substr(at, c.bytes)) != std::string_view::npos;
  };
  std::size_t begin = 0, end = text.size();
  while (side != Side::kRight && begin < end) {
    const DecodedCharacter c = decoded_at(text, begin);
    if (!goes(c, begin)) break;
    begin += c.bytes;
  }
  while (side != Side::kLeft && end > begin) {
    const DecodedCharacter c = decoded_before(text, end);
    if (!goes(c, end - c.bytes)) break;
    end -= c.bytes;
  }
  return text.substr(begin, end - begin);
}

std::vector<std::string> split_at_spaces(std::string_view text, std::int64_t most) {
  std::vector<std::string> words;
  text = stripped(text, Side::kLeft);
  while (!text.empty()) {
    if (most >= 0 && std::ssize(words) == most) {
      words.emplace_back(stripped(text, Side::kRight));
      break;
    }
    std::size_t end = 0;
    while (end < text.size() && space_at(text, end) == 0) end += character_bytes(text, end);
    words.emplace_back(text.substr(0, end));
    text = stripped(text.substr(end), Side::kLeft);
  }
  return words;
}

std::vector<std::string> split_at(std::string_view text, std::string_view separator,
                                  std::int64_t most, bool from_right) {
  std::vector<std::string> parts;
  while (most < 0 || std::ssize(parts) < most) {
    const std::size_t at = from_right ? text.rfind(separator) : text.find(separator);
    if (at == std::string_view::npos) break;
    const std::string_view behind = text.substr(at + separator.size());
    parts.emplace_back(from_right ? behind : text.substr(0, at));
    text = from_right ? text.substr(0, at) : behind;
  }
  parts.emplace_back(text);
  if (from_right) std::ranges::reverse(parts);
  return parts;
}

std::vector<std::string> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string> lines;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const DecodedCharacter c = decoded_at(text, at);
    std::size_t next = at + c.bytes;
    if (is_line_end(c.value)) {
      if (c.value == '\r' && next < text.size() && text[next] == '\n') ++next;
      lines.emplace_back(text.substr(begin, (keep_ends ? next : at) - begin));
      begin = next;
    }
    at = next;
  }
  if (begin < text.size()) lines.emplace_back(text.substr(begin));
  return lines;
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to,
                     std::int64_t most) {
  std::string result;
  std::size_t at = 0;
  for (std::int64_t done = 0; most < 0 || done < most; ++done) {
    std::size_t found = text.find(from, at);
    if (from.empty() && done > 0) {  // between characters, and at the end
      if (at >= text.size()) break;
      found = at + character_bytes(text, at);
    }
    if (found == std::string_view::npos) break;
    result.append(text.substr(at, found - at)).append(to);
    check_weight(std::ssize(result));
    at = found + from.size();
  }
  return result.append(text.substr(at));
}

std::string lower(std::string_view text) {
  std::string result;
  if (is_ascii(text)) {
    for (const char c : text) result += ascii_lower(c);
    return result;
  }
  std::u32string characters;
  for (std::size_t at = 0; at < text.size();) {
    const DecodedCharacter c = decoded_at(text, at);
    UnicodeTables::get().append_lower(c.value, characters);
    at += c.bytes;
  }
  for (const char32_t c : characters) append_utf8(result, c);
  return result;
}

std::string upper(std::string_view text) {
  check_ascii(text, "upper case");
  std::string result;
  for (const char c : text) result += ascii_upper(c);
  return result;
}

std::string capitalized(std::string_view text) {
  if (text.empty()) return {};
  const std::size_t first = character_bytes(text, 0);
  return upper(text.substr(0, first)) + lower(text.substr(first));
}

std::string titled(std::string_view text) {
  check_ascii(text, "title case");
  std::string result;
  bool inside = false;
  for (const char c : text) {
    result += inside ? ascii_lower(c) : ascii_upper(c);
    inside = is_ascii_letter(c);
  }
  return result;
}

std::string repr_of_text(std::string_view text) {
  const bool double_quotes =
      text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = double_quotes ? '"' : '\'';
  std::string result(1, quote);
  for (std::size_t at = 0; at < text.size();) {
    const DecodedCharacter c = decoded_at(text, at);
    if (c.value == '\n') {
      result += "\\n";
    } else if (c.value == '\t') {
      result += "\\t";
    } else if (c.value == '\r') {
      result += "\\r";
    } else if (c.value == '\\' || c.value == static_cast<char32_t>(quote)) {
      result += '\\';
      result += static_cast<char>(c.value);
    } else if (!is_printable(c.value)) {
      result += escape_of(c.value);
    } else {
      result += text.substr(at, c.bytes);
    }
    at += c.bytes;
  }
  return result + quote;
}

double float_of_literal(const std::string& text) {
  // strtod alone takes a host's decimal comma, and std::stod throws beyond the range.
  static const locale_t plain = newlocale(LC_ALL_MASK, "C", nullptr);
  return strtod_l(text.c_str(), nullptr, plain);
}

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char digits[64];
  const auto end =
      std::to_chars(digits, digits + sizeof digits, value, std::chars_format::scientific);
  std::string text(digits, end.ptr);  // "-1.5e+00"
  const std::size_t e = text.find('e');
  const int exponent = std::stoi(text.substr(e + 1));
  if (exponent < -4 || exponent >= 16) {
    return text.substr(0, e) +
           fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  const auto plain = std::to_chars(digits, digits + sizeof digits, value, std::chars_format::fixed);
  text.assign(digits, plain.ptr);
  return text.find('.') == std::string::npos ? text + ".0" : text;
}

std::string json_text(std::string_view text, bool ascii) {
  std::string result = "\"";
  for (std::size_t at = 0; at < text.size();) {
    const DecodedCharacter c = decoded_at(text, at);
    const auto value = static_cast<std::uint32_t>(c.value);
    switch (c.value) {
      case '"':
        result += "\\\"";
        break;
      case '\\':
        result += "\\\\";
        break;
      case '\n':
        result += "\\n";
        break;
      case '\r':
        result += "\\r";
        break;
      case '\t':
        result += "\\t";
        break;
      case '\f':
        result += "\\f";
        break;
      case '\b':
        result += "\\b";
        break;
      default:
        if (value < 0x20 || (ascii && value > 0x7E && value < 0x10000)) {
          result += fmt::format("\\u{:04x}", value);
        } else if (ascii && value >= 0x10000) {
          const std::uint32_t rest = value - 0x10000;
          result +=
              fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10U), 0xDC00 + (rest & 0x3FFU));
        } else {
          result += text.substr(at, c.bytes);
        }
    }
    at += c.bytes;
  }
  return result + '"';
}

std::string html_escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '&') {
      result += "&amp;";
    } else if (c == '<') {
      result += "&lt;";
    } else if (c == '>') {
      result += "&gt;";
    } else if (c == '\'') {
      result += "&#39;";
    } else if (c == '"') {
      result += "&#34;";
    } else {
      result += c;
    }
  }
  return result;
}

}  // namespace isthmus::jinja
