// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "text/jinja/python_text.h"
#include "text/jinja/value.h"
#include "text/unicode.h"

namespace isthmus::jinja {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool begins_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

/// Line ends as "\n", and without the last one.
std::string normalized(std::string_view source) {
  std::string text;
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      text += source[i];
      continue;
    }
    text += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}
  std::vector<Token> run();

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Refusal(fmt::format("line {}: {}", line_, what));
  }
  [[nodiscard]] char peek(std::size_t ahead = 0) const {
    return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0';
  }
  [[nodiscard]] bool sees(std::string_view text) const {
    return std::string_view(source_).substr(at_).starts_with(text);
  }
  void advance(std::size_t to) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
    at_ = to;
  }
  void push(TokenKind kind, std::string text = {}) {
    tokens_.push_back({kind, line_, std::move(text)});
  }
  void skip_spaces() {
    std::size_t to = at_;
    while (const std::size_t bytes = space_at(source_, to)) to += bytes;
    advance(to);
  }
  void text_before(std::size_t tag, char sign, bool print);
  bool take_end(std::string_view end, bool trims);
  void comment();
  bool raw();
  void inside(TokenKind end);
  void token_inside();
  void number();
  void string();
  void escape(std::string& value);
  void symbol();

  const std::string source_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_start_ = true;  // where the text before the next tag begins
  std::string brackets_;    // that are open in a tag
  std::vector<Token> tokens_;
};

/// The text between at_ and a tag, without the white space that the tag takes away; `sign` follows
/// the tag's brace.
void Lexer::text_before(std::size_t tag, char sign, bool print) {
  std::string_view text = std::string_view(source_).substr(at_, tag - at_);
  if (sign == '-') {
    text = stripped(text, Side::kRight);
  } else if (sign != '+' && !print) {
    const std::size_t newline = text.rfind('\n');
    const std::size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
    if ((begin > 0 || line_start_) && stripped(text.substr(begin), Side::kBoth).empty()) {
      text = text.substr(0, begin);
    }
  }
  if (!text.empty()) push(TokenKind::kText, std::string(text));
  advance(tag);
}

/// "-%}" with the whitespace behind it, "+%}", or "%}" with a newline behind it where `trims`.
bool Lexer::take_end(std::string_view end, bool trims) {
  const char sign = peek();
  if ((sign == '-' || (sign == '+' && trims)) &&
      std::string_view(source_).substr(at_ + 1).starts_with(end)) {
    advance(at_ + 1 + end.size());
    line_start_ = source_[at_ - 1] == '\n';
    if (sign == '-') {
      const std::size_t before = at_;
      skip_spaces();
      line_start_ = at_ > before && source_[at_ - 1] == '\n';
    }
    return true;
  }
  if (!sees(end)) return false;
  advance(at_ + end.size());
  line_start_ = false;
  if (trims && peek() == '\n') {
    advance(at_ + 1);
    line_start_ = true;
  }
  return true;
}

void Lexer::comment() {
  const int begun = line_;
  advance(at_ + 2);
  if (peek() == '-' || peek() == '+') advance(at_ + 1);
  while (at_ < source_.size()) {
    // The shortest comment ends it: a sign before the end belongs to the end.
    if ((peek() == '-' || peek() == '+' || peek() == '#') && take_end("#}", true)) return;
    advance(at_ + 1);
  }
  line_ = begun;
  fail("a comment \"{#\" without its end \"#}\"");
}

/// "{% raw %}" to "{% endraw %}", if they stand here, at a block's begin.
bool Lexer::raw() {
  const std::size_t begin = at_;
  const int line = line_;
  const auto tag = [&](std::string_view word, bool trims) {
    advance(at_ + 2);
    if (peek() == '-' || peek() == '+') advance(at_ + 1);
    skip_spaces();
    if (!sees(word)) return false;
    advance(at_ + word.size());
    skip_spaces();
    return take_end("%}", trims);
  };
  if (!tag("raw", false)) {
    at_ = begin;
    line_ = line;
    return false;
  }
  const std::size_t first = at_;
  const bool line_start = line_start_;
  for (std::size_t end = first; (end = source_.find("{%", end)) != std::string::npos; ++end) {
    at_ = end;
    const char sign = peek(2);
    const bool is_end = tag("endraw", true);
    const std::size_t behind = at_;
    const bool starts = line_start_;
    if (!is_end) continue;
    at_ = first;
    line_start_ = line_start;
    text_before(end, sign, false);
    advance(behind);
    line_start_ = starts;
    return true;
  }
  line_ = line;
  fail("{% raw %} without its {% endraw %}");
}

void Lexer::number() {
  std::size_t end = at_;
  const auto digits = [&](auto&& is) {
    while (end < source_.size() &&
           (is(source_[end]) ||
            (source_[end] == '_' && end + 1 < source_.size() && is(source_[end + 1])))) {
      ++end;
    }
  };
  const char kind = peek(1) >= 'A' && peek(1) <= 'Z' ? static_cast<char>(peek(1) + 32) : peek(1);
  TokenKind token = TokenKind::kWhole;
  if (peek() == '0' && (kind == 'x' || kind == 'o' || kind == 'b')) {
    end += 2;
    digits(is_hex);
  } else {
    digits(is_digit);
    const bool behind_dot = at_ > 0 && source_[at_ - 1] == '.';
    const auto digit_at = [&](std::size_t i) { return i < source_.size() && is_digit(source_[i]); };
    if (!behind_dot) {
      if (end < source_.size() && source_[end] == '.' && digit_at(end + 1)) {
        token = TokenKind::kFloat;
        ++end;
        digits(is_digit);
      }
      if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
        const bool sign =
            end + 1 < source_.size() && (source_[end + 1] == '+' || source_[end + 1] == '-');
        if (digit_at(end + (sign ? 2 : 1))) {
          token = TokenKind::kFloat;
          end += sign ? 2 : 1;
          digits(is_digit);
        }
      }
    }
  }
  std::string text = source_.substr(at_, end - at_);
  std::erase(text, '_');
  push(token, std::move(text));
  advance(end);
}

/// The escape after a backslash at at_, as in Python's unicode-escape.
void Lexer::escape(std::string& value) {
  constexpr std::string_view kNames = "abfnrtv\\'\"";
  constexpr std::string_view kValues = "\a\b\f\n\r\t\v\\'\"";
  const char c = peek();
  if (c == '\n') {
    advance(at_ + 1);
  } else if (const std::size_t found = kNames.find(c); found != std::string_view::npos) {
    value += kValues[found];
    advance(at_ + 1);
  } else if (c == 'x' || c == 'u' || c == 'U') {
    const std::size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
    char32_t code = 0;
    for (std::size_t i = 1; i <= digits; ++i) {
      if (!is_hex(peek(i))) fail(fmt::format("an escape \\{} without {} digits", c, digits));
      code = code * 16 + static_cast<char32_t>(std::stoi(std::string(1, peek(i)), nullptr, 16));
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
      fail(fmt::format("the escape \\{}{} is no character", c, source_.substr(at_ + 1, digits)));
    }
    append_utf8(value, code);
    advance(at_ + 1 + digits);
  } else if (c >= '0' && c <= '7') {
    char32_t code = 0;
    std::size_t i = 0;
    for (; i < 3 && peek(i) >= '0' && peek(i) <= '7'; ++i) {
      code = code * 8 + static_cast<char32_t>(peek(i) - '0');
    }
    append_utf8(value, code);
    advance(at_ + i);
  } else if (c == 'N') {
    fail("an escape \\N{...}, which is not supported");
  } else {
    value += '\\';
  }
}

void Lexer::string() {
  const char quote = peek();
  const int begun = line_;
  std::string value;
  advance(at_ + 1);
  while (at_ < source_.size() && peek() != quote) {
    if (peek() == '\\') {
      advance(at_ + 1);
      escape(value);
    } else {
      value += peek();
      advance(at_ + 1);
    }
  }
  if (at_ >= source_.size()) {
    line_ = begun;
    fail("a text in quotes without its end");
  }
  advance(at_ + 1);
  tokens_.push_back({TokenKind::kString, begun, std::move(value)});
}

void Lexer::symbol() {
  constexpr std::array<std::string_view, 6> kDouble = {"//", "**", "==", "!=", ">=", "<="};
  constexpr std::string_view kSingle = "+-/*%~[](){}><=.:|,;";
  for (const std::string_view each : kDouble) {
    if (!sees(each)) continue;
    push(TokenKind::kOperator, std::string(each));
    advance(at_ + 2);
    return;
  }
  const char c = peek();
  if (kSingle.find(c) == std::string_view::npos) {
    const std::size_t bytes = character_bytes(source_, at_);
    fail(fmt::format("the character {} begins nothing", repr_of_text(source_.substr(at_, bytes))));
  }
  if (c == '(' || c == '[' || c == '{') {
    brackets_ += c == '(' ? ')' : c == '[' ? ']' : '}';
  } else if (c == ')' || c == ']' || c == '}') {
    if (brackets_.empty() || brackets_.back() != c) {
      fail(fmt::format("'{}' without its begin", c));
    }
    brackets_.pop_back();
  }
  push(TokenKind::kOperator, std::string(1, c));
  advance(at_ + 1);
}

void Lexer::token_inside() {
  const char c = peek();
  if (is_digit(c)) {
    number();
  } else if (begins_name(c)) {
    std::size_t end = at_;
    while (end < source_.size() && (begins_name(source_[end]) || is_digit(source_[end]))) ++end;
    push(TokenKind::kName, source_.substr(at_, end - at_));
    advance(end);
  } else if (c == '\'' || c == '"') {
    string();
  } else {
    symbol();
  }
}

/// The tokens of a tag, up to its end.
void Lexer::inside(TokenKind end) {
  const std::string_view close = end == TokenKind::kBlockEnd ? "%}" : "}}";
  const int begun = line_;
  brackets_.clear();
  for (;;) {
    const int line = line_;
    skip_spaces();
    if (at_ >= source_.size()) break;
    if (brackets_.empty() && take_end(close, end == TokenKind::kBlockEnd)) {
      tokens_.push_back({end, line, {}});
      return;
    }
    token_inside();
  }
  line_ = begun;
  fail(fmt::format("\"{}\" without its end \"{}\"", end == TokenKind::kBlockEnd ? "{%" : "{{",
                   close));
}

std::vector<Token> Lexer::run() {
  for (;;) {
    std::size_t tag = at_;
    do {
      tag = source_.find('{', tag);
      if (tag == std::string::npos || tag + 1 >= source_.size()) {
        tag = std::string::npos;
        break;
      }
    } while (std::string_view("%{#").find(source_[tag + 1]) == std::string_view::npos && ++tag);
    if (tag == std::string::npos) break;
    const char kind = source_[tag + 1];
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    text_before(tag, sign, kind == '{');
    if (kind == '#') {
      comment();
      continue;
    }
    if (kind == '%' && raw()) continue;
    push(kind == '%' ? TokenKind::kBlockBegin : TokenKind::kPrintBegin);
    advance(at_ + (sign == '-' || sign == '+' ? 3 : 2));
    inside(kind == '%' ? TokenKind::kBlockEnd : TokenKind::kPrintEnd);
  }
  if (at_ < source_.size()) push(TokenKind::kText, source_.substr(at_));
  advance(source_.size());
  push(TokenKind::kEnd);
  return std::move(tokens_);
}

}  // namespace

std::vector<Token> tokens_of(std::string_view source) {
  if (const std::size_t wrong = first_invalid_utf8(source); wrong != std::string_view::npos) {
    throw Refusal(fmt::format("byte {} is not UTF-8", wrong));
  }
  return Lexer(normalized(source)).run();
}

}  // namespace isthmus::jinja
