// SPDX-License-Identifier: Apache-2.0
// The syntax tree of a template: statements and expressions. Plain data, immutable once parsed; the
// tree owns names and constants.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace isthmus::jinja {

enum class Op {
  kConstant,   // value
  kName,       // name
  kList,       // parts
  kTuple,      // parts
  kDict,       // parts: key, value, key, value ...
  kAttribute,  // parts[0].name
  kItem,       // parts[0][parts[1]]
  kSlice,      // parts[0][parts[1]:parts[2]:parts[3]], of which each may be null
  kCall,       // parts[0](parts[1...], keywords)
  kFilter,     // parts[0] | name(parts[1...], keywords); parts[0] null in a block of set
  kTest,       // parts[0] is name(parts[1...])
  kIf,         // parts[1] if parts[0] else parts[2], which may be null
  kOr,
  kAnd,
  kNot,
  kNegative,
  kPositive,
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kConcat,   // parts ~ parts ~ ...
  kCompare,  // parts[0] comparisons[0] parts[1] comparisons[1] parts[2] ...
};

enum class Comparison { kEqual, kUnequal, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct Expression {
  Op op = Op::kConstant;
  int line = 0;
  int height = 1;    // of its tree
  Value value = {};  // kConstant
  std::string name = {};
  std::vector<ExpressionPtr> parts = {};
  std::vector<std::pair<std::string, ExpressionPtr>> keywords = {};
  std::vector<Comparison> comparisons = {};
};

/// Target of `set` and `for`: a name, an attribute of a namespace, or several of these.
struct Target {
  std::string name;
  std::string attribute = {};      // of a namespace; empty for a name
  std::vector<Target> parts = {};  // of a tuple; name is empty then
  bool is_tuple = false;
};

enum class Statement {
  kText,        // text
  kPrint,       // value
  kIf,          // branches, otherwise
  kFor,         // target in value if condition: body, otherwise
  kSet,         // target = value
  kSetBlock,    // target = body | filter
  kMacro,       // name(parameters): body
  kGeneration,  // body
  kBreak,
  kContinue
};

struct Node;
using Nodes = std::vector<Node>;

struct Branch {
  ExpressionPtr condition;
  Nodes body;
};

struct Node {
  Statement statement = Statement::kText;
  int line = 0;
  std::string text = {};  // kText; the name of a macro
  ExpressionPtr value = {}, condition = {};
  Target target = {};
  std::vector<Branch> branches = {};
  std::vector<std::pair<std::string, ExpressionPtr>> parameters = {};  // default or null
  Nodes body = {}, otherwise = {};
};

}  // namespace isthmus::jinja
