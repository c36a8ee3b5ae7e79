// SPDX-License-Identifier: Apache-2.0
// Expressions of a template, by Jinja's grammar. Reads from a cursor, which it borrows.
#pragma once

#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/nodes.h"
#include "text/jinja/token_cursor.h"

namespace isthmus::jinja {

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenCursor& cursor) : cursor_(cursor) {}

  /// Parses one expression; conditional: it may be "a if b else c". THROWS (all): Refusal "line N:
  /// ...".
  ExpressionPtr expression(bool conditional = true);
  /// Parses one expression, or several with commas between them; brackets: possibly none. It ends
  /// at a bracket, the end of a tag, or the name `end_word`.
  ExpressionPtr tuple(bool conditional, bool brackets, std::string_view end_word = {});
  /// Parses "| name(...)" after `node`, at the "|".
  ExpressionPtr filter(ExpressionPtr node);

 private:
  ExpressionPtr made(Op op, int line, std::vector<ExpressionPtr> parts = {});
  ExpressionPtr conditional();
  ExpressionPtr disjunction();
  ExpressionPtr conjunction();
  ExpressionPtr negation();
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr concatenation();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr unary(bool filters);
  ExpressionPtr primary();
  ExpressionPtr postfix(ExpressionPtr node);
  ExpressionPtr filters(ExpressionPtr node);
  ExpressionPtr test(ExpressionPtr node);
  ExpressionPtr subscript(ExpressionPtr node);
  ExpressionPtr subscribed(ExpressionPtr node, int line);
  ExpressionPtr call(ExpressionPtr node);
  void arguments(Expression& into);
  ExpressionPtr list();
  ExpressionPtr dict();
  ExpressionPtr whole_number();
  std::optional<Comparison> comparison_operator();
  ExpressionPtr left_to_right(std::initializer_list<std::pair<std::string_view, Op>> operators,
                              ExpressionPtr (ExpressionParser::*part)());
  static void grow(Expression& node, const ExpressionPtr& part);

  TokenCursor& cursor_;
};

}  // namespace isthmus::jinja
