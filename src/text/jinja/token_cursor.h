// SPDX-License-Identifier: Apache-2.0
// A position in the tokens of a template, with functions common to all parsers. Belongs to one
// parser.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/lexer.h"
#include "text/jinja/value.h"

namespace isthmus::jinja {

class TokenCursor {
 public:
  explicit TokenCursor(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  [[nodiscard]] const Token& now() const { return tokens_[at_]; }
  [[nodiscard]] const Token& next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }

  // THROWS: Refusal "line N: ...", with the line of the current token.
  [[noreturn]] static void fail_at(int line, const std::string& what) {
    throw Refusal(fmt::format("line {}: {}", line, what));
  }
  [[noreturn]] void fail(const std::string& what) const { fail_at(now().line, what); }
  [[noreturn]] void unsupported(const std::string& what) const { fail(what + " is not supported"); }
  [[noreturn]] void fail_expected(std::string_view what) const {
    fail(fmt::format("{} expected, not {}", what, described(now())));
  }

  [[nodiscard]] bool is(TokenKind kind) const { return now().kind == kind; }
  [[nodiscard]] bool is_operator(std::string_view text) const {
    return is(TokenKind::kOperator) && now().text == text;
  }
  [[nodiscard]] bool is_name(std::string_view text) const {
    return is(TokenKind::kName) && now().text == text;
  }
  bool skip_operator(std::string_view text) {
    const bool there = is_operator(text);
    if (there) take();
    return there;
  }
  bool skip_name(std::string_view text) {
    const bool there = is_name(text);
    if (there) take();
    return there;
  }
  void expect_operator(std::string_view text) {
    if (!skip_operator(text)) fail_expected(fmt::format("'{}'", text));
  }
  std::string expect_name() {
    if (!is(TokenKind::kName)) fail_expected("a name");
    return take().text;
  }
  void expect(TokenKind end, std::string_view text) {
    if (!is(end)) fail_expected(fmt::format("\"{}\"", text));
    take();
  }

  /// Counts the parser's recursion depth. THROWS: Refusal when it is too deep.
  class Nested {
   public:
    explicit Nested(TokenCursor& cursor) : cursor_(cursor) {
      if (++cursor_.nested_ > kMostNested) {
        cursor_.fail(fmt::format("more than {} levels in one another", kMostNested));
      }
    }
    ~Nested() { --cursor_.nested_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

   private:
    TokenCursor& cursor_;
  };

 private:
  static constexpr int kMostNested = 200;  // nested statements and brackets
  [[nodiscard]] static std::string described(const Token& token);

  const std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int nested_ = 0;
};

}  // namespace isthmus::jinja
