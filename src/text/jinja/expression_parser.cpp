// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/expression_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "text/jinja/filters.h"
#include "text/jinja/python_text.h"
#include "text/jinja/value_tests.h"

namespace isthmus::jinja {
namespace {

constexpr int kMostHeight = 256;  // of an expression's tree

template <typename... Parts>
std::vector<ExpressionPtr> parts_of(Parts... parts) {
  std::vector<ExpressionPtr> all;
  (all.push_back(std::move(parts)), ...);
  return all;
}
}  // namespace

void ExpressionParser::grow(Expression& node, const ExpressionPtr& part) {
  if (part != nullptr) node.height = std::max(node.height, part->height + 1);
}

ExpressionPtr ExpressionParser::made(Op op, int line, std::vector<ExpressionPtr> parts) {
  auto node = std::make_unique<Expression>();
  node->op = op;
  node->line = line;
  for (const ExpressionPtr& part : parts) grow(*node, part);
  node->parts = std::move(parts);
  if (node->height > kMostHeight) {
    cursor_.fail_at(line, fmt::format("an expression of more than {} levels", kMostHeight));
  }
  return node;
}

ExpressionPtr ExpressionParser::expression(bool with_condition) {
  const TokenCursor::Nested nested(cursor_);
  return with_condition ? conditional() : disjunction();
}

ExpressionPtr ExpressionParser::conditional() {
  ExpressionPtr node = disjunction();
  while (cursor_.is_name("if")) {
    const int line = cursor_.take().line;
    ExpressionPtr condition = disjunction();
    ExpressionPtr otherwise;
    if (cursor_.skip_name("else")) {
      const TokenCursor::Nested nested(cursor_);
      otherwise = conditional();
    }
    node =
        made(Op::kIf, line, parts_of(std::move(condition), std::move(node), std::move(otherwise)));
  }
  return node;
}

ExpressionPtr ExpressionParser::disjunction() {
  return left_to_right({{"or", Op::kOr}}, &ExpressionParser::conjunction);
}

ExpressionPtr ExpressionParser::conjunction() {
  return left_to_right({{"and", Op::kAnd}}, &ExpressionParser::negation);
}

ExpressionPtr ExpressionParser::negation() {
  if (!cursor_.is_name("not")) return comparison();
  const TokenCursor::Nested nested(cursor_);
  const int line = cursor_.take().line;
  return made(Op::kNot, line, parts_of(negation()));
}

std::optional<Comparison> ExpressionParser::comparison_operator() {
  constexpr std::array<std::pair<std::string_view, Comparison>, 6> kOperators = {
      {{"==", Comparison::kEqual},
       {"!=", Comparison::kUnequal},
       {"<", Comparison::kLess},
       {"<=", Comparison::kLessEqual},
       {">", Comparison::kGreater},
       {">=", Comparison::kGreaterEqual}}};
  for (const auto& [text, comparison] : kOperators) {
    if (cursor_.skip_operator(text)) return comparison;
  }
  if (cursor_.skip_name("in")) return Comparison::kIn;
  if (!cursor_.is_name("not") || cursor_.next().kind != TokenKind::kName ||
      cursor_.next().text != "in")
    return {};
  cursor_.take();
  cursor_.take();
  return Comparison::kNotIn;
}

ExpressionPtr ExpressionParser::comparison() {
  const int line = cursor_.now().line;
  std::vector<ExpressionPtr> parts = parts_of(sum());
  std::vector<Comparison> comparisons;
  while (const auto comparison = comparison_operator()) {
    comparisons.push_back(*comparison);
    parts.push_back(sum());
  }
  if (comparisons.empty()) return std::move(parts.front());
  ExpressionPtr node = made(Op::kCompare, line, std::move(parts));
  node->comparisons = std::move(comparisons);
  return node;
}

ExpressionPtr ExpressionParser::left_to_right(
    std::initializer_list<std::pair<std::string_view, Op>> operators,
    ExpressionPtr (ExpressionParser::*part)()) {
  ExpressionPtr node = (this->*part)();
  for (;;) {
    const auto found = std::ranges::find_if(operators, [this](const auto& each) {
      return cursor_.is_operator(each.first) || cursor_.is_name(each.first);
    });
    if (found == operators.end()) return node;
    const int line = cursor_.take().line;
    node = made(found->second, line, parts_of(std::move(node), (this->*part)()));
  }
}

ExpressionPtr ExpressionParser::sum() {
  return left_to_right({{"+", Op::kAdd}, {"-", Op::kSubtract}}, &ExpressionParser::concatenation);
}

ExpressionPtr ExpressionParser::concatenation() {
  const int line = cursor_.now().line;
  std::vector<ExpressionPtr> parts = parts_of(product());
  while (cursor_.skip_operator("~")) parts.push_back(product());
  return parts.size() == 1 ? std::move(parts.front()) : made(Op::kConcat, line, std::move(parts));
}

ExpressionPtr ExpressionParser::product() {
  return left_to_right(
      {{"*", Op::kMultiply}, {"/", Op::kDivide}, {"//", Op::kFloorDivide}, {"%", Op::kModulo}},
      &ExpressionParser::power);
}

ExpressionPtr ExpressionParser::power() {
  ExpressionPtr node = unary(true);
  while (cursor_.is_operator("**")) {
    const int line = cursor_.take().line;
    node = made(Op::kPower, line, parts_of(std::move(node), unary(true)));
  }
  return node;
}

ExpressionPtr ExpressionParser::unary(bool with_filters) {
  const TokenCursor::Nested nested(cursor_);
  const int line = cursor_.now().line;
  ExpressionPtr node;
  if (cursor_.skip_operator("-")) {
    node = made(Op::kNegative, line, parts_of(unary(false)));
  } else if (cursor_.skip_operator("+")) {
    node = made(Op::kPositive, line, parts_of(unary(false)));
  } else {
    node = primary();
  }
  node = postfix(std::move(node));
  return with_filters ? filters(std::move(node)) : std::move(node);
}

ExpressionPtr ExpressionParser::whole_number() {
  const Token token = cursor_.take();
  std::string_view digits = token.text;
  int base = 10;
  if (digits.size() > 2 && digits[0] == '0' && !(digits[1] >= '0' && digits[1] <= '9')) {
    const char kind = digits[1];
    base = kind == 'x' || kind == 'X' ? 16 : kind == 'o' || kind == 'O' ? 8 : 2;
    digits.remove_prefix(2);
  }
  std::int64_t value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (error != std::errc() || end != digits.data() + digits.size()) {
    cursor_.fail_at(token.line,
                    fmt::format("the number {} is beyond 64 bits, or none", token.text));
  }
  ExpressionPtr node = made(Op::kConstant, token.line);
  node->value = value;
  return node;
}

ExpressionPtr ExpressionParser::primary() {
  const int line = cursor_.now().line;
  const auto constant = [&](Value value) {
    ExpressionPtr node = made(Op::kConstant, line);
    node->value = std::move(value);
    return node;
  };
  switch (cursor_.now().kind) {
    case TokenKind::kName: {
      const std::string name = cursor_.take().text;
      if (name == "true" || name == "True") return constant(true);
      if (name == "false" || name == "False") return constant(false);
      if (name == "none" || name == "None") return constant({});
      ExpressionPtr node = made(Op::kName, line);
      node->name = name;
      return node;
    }
    case TokenKind::kString: {
      std::string text = cursor_.take().text;
      while (cursor_.is(TokenKind::kString)) text += cursor_.take().text;
      return constant(Value(std::move(text)));
    }
    case TokenKind::kWhole:
      return whole_number();
    case TokenKind::kFloat:
      return constant(float_of_literal(cursor_.take().text));
    default:
      break;
  }
  if (cursor_.skip_operator("(")) {
    ExpressionPtr node = tuple(true, true);
    cursor_.expect_operator(")");
    return node;
  }
  if (cursor_.is_operator("[")) return list();
  if (cursor_.is_operator("{")) return dict();
  cursor_.fail_expected("a value");
}

ExpressionPtr ExpressionParser::tuple(bool with_condition, bool brackets,
                                      std::string_view end_word) {
  const int line = cursor_.now().line;
  std::vector<ExpressionPtr> parts;
  bool is_tuple = false;
  for (;;) {
    const bool ends = cursor_.is(TokenKind::kPrintEnd) || cursor_.is(TokenKind::kBlockEnd) ||
                      cursor_.is_operator(")") || (!end_word.empty() && cursor_.is_name(end_word));
    if (ends) break;
    parts.push_back(expression(with_condition));
    if (!cursor_.skip_operator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !parts.empty()) return std::move(parts.front());
  if (parts.empty() && !brackets) {
    cursor_.fail_expected("a value");
  }
  return made(Op::kTuple, line, std::move(parts));
}

ExpressionPtr ExpressionParser::list() {
  const int line = cursor_.take().line;
  std::vector<ExpressionPtr> parts;
  while (!cursor_.is_operator("]")) {
    if (!parts.empty()) cursor_.expect_operator(",");
    if (cursor_.is_operator("]")) break;
    parts.push_back(expression());
  }
  cursor_.take();
  return made(Op::kList, line, std::move(parts));
}

ExpressionPtr ExpressionParser::dict() {
  const int line = cursor_.take().line;
  std::vector<ExpressionPtr> parts;
  while (!cursor_.is_operator("}")) {
    if (!parts.empty()) cursor_.expect_operator(",");
    if (cursor_.is_operator("}")) break;
    parts.push_back(expression());
    cursor_.expect_operator(":");
    parts.push_back(expression());
  }
  cursor_.take();
  return made(Op::kDict, line, std::move(parts));
}

ExpressionPtr ExpressionParser::postfix(ExpressionPtr node) {
  for (;;) {
    if (cursor_.is_operator(".") || cursor_.is_operator("[")) {
      node = subscript(std::move(node));
    } else if (cursor_.is_operator("(")) {
      node = call(std::move(node));
    } else {
      return node;
    }
  }
}

ExpressionPtr ExpressionParser::filters(ExpressionPtr node) {
  for (;;) {
    if (cursor_.is_operator("|")) {
      node = filter(std::move(node));
    } else if (cursor_.is_name("is")) {
      node = test(std::move(node));
    } else if (cursor_.is_operator("(")) {
      node = call(std::move(node));
    } else {
      return node;
    }
  }
}

ExpressionPtr ExpressionParser::subscript(ExpressionPtr node) {
  const int line = cursor_.now().line;
  if (cursor_.skip_operator(".")) {
    if (cursor_.is(TokenKind::kWhole)) {
      return made(Op::kItem, line, parts_of(std::move(node), whole_number()));
    }
    ExpressionPtr attribute = made(Op::kAttribute, line, parts_of(std::move(node)));
    attribute->name = cursor_.expect_name();
    return attribute;
  }
  cursor_.take();
  ExpressionPtr result = subscribed(std::move(node), line);
  if (cursor_.is_operator(",")) cursor_.unsupported("an item of several places");
  cursor_.expect_operator("]");
  return result;
}

ExpressionPtr ExpressionParser::subscribed(ExpressionPtr node, int line) {
  std::vector<ExpressionPtr> parts =
      parts_of(std::move(node), ExpressionPtr(), ExpressionPtr(), ExpressionPtr());
  if (!cursor_.is_operator(":")) {
    parts[1] = expression();
    if (!cursor_.is_operator(":")) {
      parts.resize(2);
      return made(Op::kItem, line, std::move(parts));
    }
  }
  cursor_.take();
  if (!cursor_.is_operator(":") && !cursor_.is_operator("]")) parts[2] = expression();
  if (cursor_.skip_operator(":") && !cursor_.is_operator("]")) parts[3] = expression();
  return made(Op::kSlice, line, std::move(parts));
}

/// "(a, b, name=c)" as parts and keywords of `into`.
void ExpressionParser::arguments(Expression& into) {
  cursor_.expect_operator("(");
  bool first = true;
  while (!cursor_.is_operator(")")) {
    if (!first) cursor_.expect_operator(",");
    first = false;
    if (cursor_.is_operator(")")) break;
    if (cursor_.is_operator("*") || cursor_.is_operator("**"))
      cursor_.unsupported("a call with * or **");
    const bool keyword = cursor_.is(TokenKind::kName) &&
                         cursor_.next().kind == TokenKind::kOperator && cursor_.next().text == "=";
    if (keyword) {
      const std::string name = cursor_.take().text;
      cursor_.take();
      into.keywords.emplace_back(name, expression());
      grow(into, into.keywords.back().second);
    } else {
      if (!into.keywords.empty()) cursor_.fail("a value behind one that has a name");
      into.parts.push_back(expression());
      grow(into, into.parts.back());
    }
  }
  cursor_.take();
  if (into.height > kMostHeight) {
    cursor_.fail_at(into.line, fmt::format("an expression of more than {} levels", kMostHeight));
  }
}

ExpressionPtr ExpressionParser::call(ExpressionPtr node) {
  ExpressionPtr made_call = made(Op::kCall, cursor_.now().line, parts_of(std::move(node)));
  arguments(*made_call);
  return made_call;
}

ExpressionPtr ExpressionParser::filter(ExpressionPtr node) {
  cursor_.take();
  ExpressionPtr made_filter = made(Op::kFilter, cursor_.now().line, parts_of(std::move(node)));
  made_filter->name = cursor_.expect_name();
  if (!is_filter(made_filter->name)) {
    cursor_.fail_at(made_filter->line,
                    fmt::format("the filter '{}' is not supported", made_filter->name));
  }
  if (cursor_.is_operator("(")) arguments(*made_filter);
  return made_filter;
}

ExpressionPtr ExpressionParser::test(ExpressionPtr node) {
  const int line = cursor_.take().line;
  const bool negated = cursor_.skip_name("not");
  ExpressionPtr made_test = made(Op::kTest, line, parts_of(std::move(node)));
  made_test->name = cursor_.expect_name();
  if (!is_test(made_test->name)) {
    cursor_.fail_at(line, fmt::format("the test '{}' is not supported", made_test->name));
  }
  const bool word = cursor_.is_name("else") || cursor_.is_name("or") || cursor_.is_name("and");
  const bool begins = cursor_.is(TokenKind::kName) || cursor_.is(TokenKind::kString) ||
                      cursor_.is(TokenKind::kWhole) || cursor_.is(TokenKind::kFloat) ||
                      cursor_.is_operator("[") || cursor_.is_operator("{");
  if (cursor_.is_operator("(")) {
    arguments(*made_test);
    if (!made_test->keywords.empty()) cursor_.fail("a test with a named value");
  } else if (begins && !word) {
    if (cursor_.is_name("is")) cursor_.fail("a test behind a test");
    // As Jinja has it, "x is defined if y" takes no value, and "if" would be one.
    made_test->parts.push_back(postfix(primary()));
    grow(*made_test, made_test->parts.back());
  }
  return negated ? made(Op::kNot, line, parts_of(std::move(made_test))) : std::move(made_test);
}

}  // namespace isthmus::jinja
