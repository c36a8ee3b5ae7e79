// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "text/jinja/expression_parser.h"
#include "text/jinja/lexer.h"
#include "text/jinja/token_cursor.h"

namespace isthmus::jinja {
namespace {

constexpr std::size_t kMostSource = std::size_t{1} << 20;

using Words = std::vector<std::string_view>;

class StatementParser {
 public:
  explicit StatementParser(std::vector<Token> tokens)
      : cursor_(std::move(tokens)), expressions_(cursor_) {}
  Nodes run() { return body({}); }

 private:
  /// Nodes up to a statement of one of these names, which is not taken; none: to the end.
  Nodes body(const Words& ends);
  /// The body up to {% end %}, which is taken.
  Nodes body_until(std::string_view end);
  /// The body behind {% else %} up to {% end %}, one of which comes next; empty at {% end %}.
  Nodes else_body(std::string_view end);
  Node statement();
  Node if_statement();
  Node for_statement();
  Node set_statement();
  Node macro_statement();
  Node generation_statement();
  Target target(bool attributes, bool of_for);
  Target one_target(bool attributes);

  TokenCursor cursor_;
  ExpressionParser expressions_;
  int loops_ = 0;  // around the statement
};

Nodes StatementParser::body(const Words& ends) {
  Nodes nodes;
  for (;;) {
    switch (cursor_.now().kind) {
      case TokenKind::kText: {
        Node& node = nodes.emplace_back();
        node.line = cursor_.now().line;
        node.text = cursor_.take().text;
        break;
      }
      case TokenKind::kPrintBegin: {
        Node node;
        node.statement = Statement::kPrint;
        node.line = cursor_.take().line;
        node.value = expressions_.tuple(true, false);
        cursor_.expect(TokenKind::kPrintEnd, "}}");
        nodes.push_back(std::move(node));
        break;
      }
      case TokenKind::kBlockBegin: {
        const bool ended = cursor_.next().kind == TokenKind::kName &&
                           std::ranges::find(ends, cursor_.next().text) != ends.end();
        if (ended) return nodes;
        cursor_.take();
        nodes.push_back(statement());
        break;
      }
      default:
        if (ends.empty()) return nodes;
        cursor_.fail(fmt::format("{{% {} %}} is missing", ends.back()));
    }
  }
}

Nodes StatementParser::body_until(std::string_view end) {
  Nodes nodes = body({end});
  cursor_.take();
  cursor_.take();
  cursor_.expect(TokenKind::kBlockEnd, "%}");
  return nodes;
}

Node StatementParser::statement() {
  const TokenCursor::Nested nested(cursor_);
  const int line = cursor_.now().line;
  const std::string word = cursor_.is(TokenKind::kName) ? cursor_.now().text : "";
  Node node;
  if (word == "if") {
    node = if_statement();
  } else if (word == "for") {
    node = for_statement();
  } else if (word == "set") {
    node = set_statement();
  } else if (word == "macro") {
    node = macro_statement();
  } else if (word == "generation") {
    node = generation_statement();
  } else if (word == "break" || word == "continue") {
    if (loops_ == 0) cursor_.fail(fmt::format("{{% {} %}} outside of a loop", word));
    cursor_.take();
    node.statement = word == "break" ? Statement::kBreak : Statement::kContinue;
    cursor_.expect(TokenKind::kBlockEnd, "%}");
  } else {
    constexpr std::array kOthers = {"call",   "filter", "with", "block",      "extends", "include",
                                    "import", "from",   "do",   "autoescape", "trans",   "debug"};
    const bool known = std::ranges::find(kOthers, word) != kOthers.end();
    if (known) cursor_.unsupported(fmt::format("{{% {} %}}", word));
    cursor_.fail(fmt::format("{{% {} %}}: no such statement", word));
  }
  node.line = line;
  return node;
}

Nodes StatementParser::else_body(std::string_view end) {
  const bool otherwise = cursor_.take().text == "else";
  cursor_.expect(TokenKind::kBlockEnd, "%}");
  return otherwise ? body_until(end) : Nodes();
}

Node StatementParser::if_statement() {
  Node node;
  node.statement = Statement::kIf;
  for (;;) {
    cursor_.take();  // if, elif
    Branch branch;
    branch.condition = expressions_.tuple(false, false);
    cursor_.expect(TokenKind::kBlockEnd, "%}");
    branch.body = body({"elif", "else", "endif"});
    node.branches.push_back(std::move(branch));
    cursor_.take();
    if (cursor_.is_name("elif")) continue;
    node.otherwise = else_body("endif");
    return node;
  }
}

Node StatementParser::for_statement() {
  Node node;
  node.statement = Statement::kFor;
  cursor_.take();
  node.target = target(false, true);
  if (!cursor_.skip_name("in")) cursor_.fail_expected("'in'");
  node.value = expressions_.tuple(false, false, "recursive");
  if (cursor_.skip_name("if")) node.condition = expressions_.expression();
  if (cursor_.is_name("recursive")) cursor_.unsupported("a recursive loop");
  cursor_.expect(TokenKind::kBlockEnd, "%}");
  ++loops_;
  node.body = body({"else", "endfor"});
  --loops_;
  cursor_.take();
  node.otherwise = else_body("endfor");
  return node;
}

Node StatementParser::set_statement() {
  Node node;
  cursor_.take();
  node.target = target(true, false);
  if (cursor_.skip_operator("=")) {
    node.statement = Statement::kSet;
    node.value = expressions_.tuple(true, false);
    cursor_.expect(TokenKind::kBlockEnd, "%}");
    return node;
  }
  node.statement = Statement::kSetBlock;
  while (cursor_.is_operator("|")) node.value = expressions_.filter(std::move(node.value));
  cursor_.expect(TokenKind::kBlockEnd, "%}");
  node.body = body_until("endset");
  return node;
}

Node StatementParser::macro_statement() {
  Node node;
  node.statement = Statement::kMacro;
  cursor_.take();
  node.text = cursor_.expect_name();
  cursor_.expect_operator("(");
  while (!cursor_.is_operator(")")) {
    if (!node.parameters.empty()) cursor_.expect_operator(",");
    if (cursor_.is_operator(")")) break;
    const std::string name = cursor_.expect_name();
    ExpressionPtr value;
    if (cursor_.skip_operator("=")) {
      value = expressions_.expression();
    } else if (!node.parameters.empty() && node.parameters.back().second != nullptr) {
      cursor_.fail(
          fmt::format("the parameter '{}' without a default behind one that has it", name));
    }
    node.parameters.emplace_back(name, std::move(value));
  }
  cursor_.take();
  cursor_.expect(TokenKind::kBlockEnd, "%}");
  const int loops = std::exchange(loops_, 0);
  node.body = body_until("endmacro");
  loops_ = loops;
  return node;
}

Node StatementParser::generation_statement() {
  Node node;
  node.statement = Statement::kGeneration;
  cursor_.take();
  cursor_.expect(TokenKind::kBlockEnd, "%}");
  const int loops = std::exchange(loops_, 0);
  node.body = body_until("endgeneration");
  loops_ = loops;
  return node;
}

Target StatementParser::one_target(bool attributes) {
  if (cursor_.skip_operator("(")) {
    Target inner = target(attributes, false);
    cursor_.expect_operator(")");
    return inner;
  }
  Target one;
  const int line = cursor_.now().line;
  one.name = cursor_.expect_name();
  constexpr std::array kConstants = {"true", "false", "none", "True", "False", "None"};
  if (std::ranges::find(kConstants, one.name) != kConstants.end()) {
    cursor_.fail_at(line, fmt::format("'{}' cannot be assigned to", one.name));
  }
  if (attributes && cursor_.skip_operator(".")) one.attribute = cursor_.expect_name();
  return one;
}

Target StatementParser::target(bool attributes, bool of_for) {
  const TokenCursor::Nested nested(cursor_);
  Target first = one_target(attributes);
  if (!cursor_.is_operator(",")) return first;
  Target all;
  all.is_tuple = true;
  all.parts.push_back(std::move(first));
  while (cursor_.skip_operator(",")) {
    const bool ends = cursor_.is_operator("=") || cursor_.is_operator(")") ||
                      cursor_.is(TokenKind::kBlockEnd) || (of_for && cursor_.is_name("in"));
    if (ends) break;
    all.parts.push_back(one_target(attributes));
  }
  return all;
}

}  // namespace

Nodes parse_template(std::string_view source) {
  if (source.size() > kMostSource) {
    throw Refusal(fmt::format("line 1: the template has {} bytes, and {} are the most",
                              source.size(), kMostSource));
  }
  return StatementParser(tokens_of(source)).run();
}

}  // namespace isthmus::jinja
