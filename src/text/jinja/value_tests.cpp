// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/value_tests.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "text/jinja/filters.h"
#include "text/jinja/operators.h"
#include "text/jinja/python_text.h"

namespace isthmus::jinja {
namespace {

using Plain = bool (*)(const Value&);
using Against = bool (*)(const Value&, const Value&);

bool same(const Value& a, const Value& b) {
  if (a.kind() != b.kind()) return false;
  if (a.is_none() || a.kind() == Kind::kBool || a.kind() == Kind::kObject) return equal(a, b);
  throw Refusal(fmt::format("'sameas' between two {} is not supported", a.type_name()));
}

std::int64_t whole_of(const Value& value, std::string_view test) {
  check_defined(value);
  if (value.is_whole()) return value.whole();
  throw Refusal(fmt::format("the test '{}' of a {}", test, value.type_name()));
}

bool has_case(const Value& value, bool upper_case) {
  const std::string text = to_text(value);
  const std::string other = upper_case ? lower(text) : upper(text);
  return text != other && text == (upper_case ? upper(text) : lower(text));
}

constexpr std::array<std::pair<std::string_view, Plain>, 21> kPlain = {{
    {"defined", [](const Value& v) { return !v.is_undefined(); }},
    {"undefined", [](const Value& v) { return v.is_undefined(); }},
    {"none", [](const Value& v) { return v.is_none(); }},
    {"boolean", [](const Value& v) { return v.kind() == Kind::kBool; }},
    {"true", [](const Value& v) { return v.kind() == Kind::kBool && v.truth(); }},
    {"false", [](const Value& v) { return v.kind() == Kind::kBool && !v.truth(); }},
    {"integer", [](const Value& v) { return v.kind() == Kind::kInt; }},
    {"float", [](const Value& v) { return v.kind() == Kind::kFloat; }},
    {"number", [](const Value& v) { return v.is_number(); }},
    {"string", [](const Value& v) { return v.is_string(); }},
    {"mapping", [](const Value& v) { return v.is_dict(); }},
    {"iterable",
     [](const Value& v) {
       return v.is_string() || v.is_sequence() || v.is_dict() || v.is_undefined();
     }},
    {"sequence",
     [](const Value& v) {
       return v.is_string() || v.is_indexed() || v.is_dict() || v.is_undefined();
     }},
    {"callable",
     [](const Value& v) { return v.kind() == Kind::kObject && v.as_object().callable(); }},
    {"odd", [](const Value& v) { return whole_of(v, "odd") % 2 != 0; }},
    {"even", [](const Value& v) { return whole_of(v, "even") % 2 == 0; }},
    {"lower", [](const Value& v) { return has_case(v, false); }},
    {"upper", [](const Value& v) { return has_case(v, true); }},
    {"escaped", [](const Value& v) { return v.is_markup(); }},
    {"filter", [](const Value& v) { return v.is_string() && is_filter(v.text()); }},
    {"test", [](const Value& v) { return v.is_string() && is_test(v.text()); }},
}};

constexpr Against kIs = [](const Value& a, const Value& b) {
  return compared(Comparison::kEqual, a, b);
};
constexpr Against kIsNot = [](const Value& a, const Value& b) {
  return compared(Comparison::kUnequal, a, b);
};
constexpr Against kLess = [](const Value& a, const Value& b) {
  return compared(Comparison::kLess, a, b);
};
constexpr Against kLessEqual = [](const Value& a, const Value& b) {
  return compared(Comparison::kLessEqual, a, b);
};
constexpr Against kGreater = [](const Value& a, const Value& b) {
  return compared(Comparison::kGreater, a, b);
};
constexpr Against kGreaterEqual = [](const Value& a, const Value& b) {
  return compared(Comparison::kGreaterEqual, a, b);
};

constexpr std::array<std::pair<std::string_view, Against>, 18> kAgainst = {{
    {"eq", kIs},
    {"equalto", kIs},
    {"==", kIs},
    {"ne", kIsNot},
    {"!=", kIsNot},
    {"lt", kLess},
    {"lessthan", kLess},
    {"<", kLess},
    {"le", kLessEqual},
    {"<=", kLessEqual},
    {"gt", kGreater},
    {"greaterthan", kGreater},
    {">", kGreater},
    {"ge", kGreaterEqual},
    {">=", kGreaterEqual},
    {"in", [](const Value& a, const Value& b) { return compared(Comparison::kIn, a, b); }},
    {"sameas", same},
    {"divisibleby",
     [](const Value& a, const Value& b) {
       const Value rest = computed(Op::kModulo, a, b);
       return rest.is_number() && rest.number() == 0;
     }},
}};

const auto* test_entry(const auto& table, std::string_view name) {
  const auto at = std::ranges::find(table, name, [](const auto& each) { return each.first; });
  return at == table.end() ? nullptr : &*at;
}

}  // namespace

bool is_test(std::string_view name) {
  return test_entry(kPlain, name) != nullptr || test_entry(kAgainst, name) != nullptr;
}

bool passes_test(std::string_view name, const Value& value, const Arguments& arguments) {
  if (const auto* const plain = test_entry(kPlain, name)) {
    static_cast<void>(Parameters(name, arguments, {}, 0));
    return plain->second(value);
  }
  const Parameters parameters(name, arguments, {"other"}, 1);
  return test_entry(kAgainst, name)->second(value, parameters.at(0));
}

}  // namespace isthmus::jinja
