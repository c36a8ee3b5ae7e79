// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/operators.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/names.h"
#include "text/jinja/python_text.h"

namespace isthmus::jinja {
namespace {

constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kSmallest = std::numeric_limits<std::int64_t>::min();

constexpr Named<Op> kSymbols[] = {
    {Op::kAdd, "+"},    {Op::kSubtract, "-"},     {Op::kMultiply, "*"},
    {Op::kDivide, "/"}, {Op::kFloorDivide, "//"}, {Op::kModulo, "%"},
};

std::string_view symbol_of(Op op) { return name_in(kSymbols, op, "**"); }

[[noreturn]] void unlike(std::string_view symbol, const Value& a, const Value& b) {
  throw Refusal(fmt::format("'{}' between a {} and a {}", symbol, a.type_name(), b.type_name()));
}

[[noreturn]] void too_large() { throw Refusal("a whole number beyond 64 bits"); }

std::int64_t whole_result(Op op, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  bool overflows = false;
  if (op == Op::kAdd) overflows = __builtin_add_overflow(a, b, &result);
  if (op == Op::kSubtract) overflows = __builtin_sub_overflow(a, b, &result);
  if (op == Op::kMultiply) overflows = __builtin_mul_overflow(a, b, &result);
  if (op == Op::kFloorDivide || op == Op::kModulo) {
    if (b == 0) throw Refusal("a division by zero");
    if (a == kSmallest && b == -1) too_large();
    const std::int64_t rest = a % b;
    const bool down = rest != 0 && (rest < 0) != (b < 0);
    result = op == Op::kModulo ? rest + (down ? b : 0) : a / b - (down ? 1 : 0);
  }
  if (overflows) too_large();
  return result;
}

std::int64_t whole_power(std::int64_t a, std::int64_t exponent) {
  std::int64_t result = 1;
  for (std::int64_t i = 0; i < exponent; ++i) {
    result = whole_result(Op::kMultiply, result, a);
    if (result == 0 || result == 1) break;
    if (a == -1) return exponent % 2 == 0 ? 1 : -1;
  }
  return result;
}

double float_result(Op op, double a, double b) {
  if (op == Op::kAdd) return a + b;
  if (op == Op::kSubtract) return a - b;
  if (op == Op::kMultiply) return a * b;
  if (op == Op::kPower) return std::pow(a, b);
  if (b == 0) throw Refusal("a division by zero");
  if (op == Op::kDivide) return a / b;
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  return op == Op::kModulo ? rest : std::floor((a - rest) / b + 0.5);
}

Value number_result(Op op, const Value& a, const Value& b) {
  const bool wholes = a.is_whole() && b.is_whole();
  if (wholes && op == Op::kPower && b.whole() >= 0) return whole_power(a.whole(), b.whole());
  if (wholes && op != Op::kDivide && op != Op::kPower) {
    return whole_result(op, a.whole(), b.whole());
  }
  return float_result(op, a.number(), b.number());
}

Value repeated(const Value& value, std::int64_t times) {
  times = std::max<std::int64_t>(times, 0);
  if (value.is_string()) {
    check_weight(checked_product(std::ssize(value.text()), times));
    std::string text;
    for (std::int64_t i = 0; i < times && !value.text().empty(); ++i) text += value.text();
    return value.is_markup() ? Value::markup(std::move(text)) : Value(std::move(text));
  }
  check_weight(checked_product(value.weight(), times));
  Values items;
  for (std::int64_t i = 0; i < times && !value.items().empty(); ++i) {
    items.insert(items.end(), value.items().begin(), value.items().end());
  }
  return Value::sequence(value.kind(), std::move(items));
}

/// The text of both, of which one that is not markup is escaped where the other is.
Value text_sum(const Value& a, const Value& b) {
  if (!a.is_markup() && !b.is_markup()) return Value(a.text() + b.text());
  const auto part = [](const Value& value) {
    return value.is_markup() ? value.text() : html_escaped(value.text());
  };
  return Value::markup(part(a) + part(b));
}

bool is_repeatable(const Value& value) {
  return value.is_string() || value.kind() == Kind::kList || value.kind() == Kind::kTuple;
}

bool contains(const Value& container, const Value& value) {
  if (container.is_string()) {
    if (!value.is_string()) {
      throw Refusal(
          fmt::format("'in <string>' requires string as left operand, not {}", value.type_name()));
    }
    return container.text().find(value.text()) != std::string::npos;
  }
  if (container.is_dict()) return container.find(value) != nullptr;
  if (container.is_undefined()) return false;
  if (!container.is_sequence()) {
    throw Refusal(fmt::format("argument of type '{}' is not iterable", container.type_name()));
  }
  const auto items = container.items();
  const bool found =
      std::ranges::any_of(items, [&](const Value& item) { return equal(item, value); });
  container.use_up(items.size());
  return found;
}

/// A bound of a slice of `size` items: Python's rules for bounds that are negative or beyond the
/// end.
std::int64_t slice_place(const Value& given, std::int64_t size, std::int64_t step,
                         std::int64_t otherwise) {
  if (given.is_none()) return otherwise;
  if (!given.is_whole()) throw Refusal("slice indices must be integers or None");
  std::int64_t place = given.whole();
  if (place < 0) place = place < -size ? -1 : place + size;
  const std::int64_t least = step > 0 ? 0 : -1, most = step > 0 ? size : size - 1;
  return std::clamp(place, least, most);
}

}  // namespace

void check_defined(const Value& value) {
  if (value.is_undefined()) throw Refusal(value.why_undefined());
}

Value computed(Op op, const Value& a, const Value& b) {
  check_defined(a);
  check_defined(b);
  if (a.is_number() && b.is_number()) return number_result(op, a, b);
  if (op == Op::kAdd && a.is_string() && b.is_string()) return text_sum(a, b);
  if (op == Op::kAdd && a.kind() == b.kind() && is_repeatable(a)) {
    Values items(a.items().begin(), a.items().end());
    items.insert(items.end(), b.items().begin(), b.items().end());
    return Value::sequence(a.kind(), std::move(items));
  }
  if (op == Op::kMultiply && is_repeatable(a) && b.is_whole()) return repeated(a, b.whole());
  if (op == Op::kMultiply && is_repeatable(b) && a.is_whole()) return repeated(b, a.whole());
  if (op == Op::kModulo && a.is_string()) {
    throw Refusal("'%' behind a text (printf formats) is not supported; '~' joins texts");
  }
  unlike(symbol_of(op), a, b);
}

Value negative(const Value& value) {
  check_defined(value);
  if (value.is_whole()) return whole_result(Op::kSubtract, 0, value.whole());
  if (value.kind() == Kind::kFloat) return -value.number();
  throw Refusal(fmt::format("'-' in front of a {}", value.type_name()));
}

Value concatenated(std::span<const Value> values) {
  std::string text;  // markup or not: only "+" escapes
  for (const Value& value : values) {
    text += to_text(value);
    check_weight(std::ssize(text));
  }
  return Value(std::move(text));
}

bool less(const Value& a, const Value& b) {
  check_defined(a);
  check_defined(b);
  if (a.is_whole() && b.is_whole()) return a.whole() < b.whole();
  if (a.is_number() && b.is_number()) return a.number() < b.number();
  if (a.is_string() && b.is_string()) return a.text() < b.text();  // UTF-8 sorts as characters do
  if (a.kind() == b.kind() && (a.kind() == Kind::kList || a.kind() == Kind::kTuple)) {
    const auto x = a.items(), y = b.items();
    for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (!equal(x[i], y[i])) return less(x[i], y[i]);
    }
    return x.size() < y.size();
  }
  unlike("<", a, b);
}

bool compared(Comparison comparison, const Value& a, const Value& b) {
  switch (comparison) {
    case Comparison::kEqual:
      return equal(a, b);
    case Comparison::kUnequal:
      return !equal(a, b);
    case Comparison::kIn:
      return contains(b, a);
    case Comparison::kNotIn:
      return !contains(b, a);
    case Comparison::kLess:
      return less(a, b);
    case Comparison::kGreater:
      return less(b, a);
    case Comparison::kLessEqual:
      return less(a, b) || equal(a, b);
    case Comparison::kGreaterEqual:
      return less(b, a) || equal(a, b);
  }
  return false;
}

Value item_of(const Value& value, const Value& key) {
  check_defined(value);
  if (value.is_dict()) {
    if (const Value* const found = value.find(key)) return *found;
  } else if (key.is_whole() && (value.is_string() || value.is_indexed())) {
    const std::int64_t size = value.is_string() ? length(value.text()) : std::ssize(value.items());
    const std::int64_t place = key.whole() < 0 ? key.whole() + size : key.whole();
    if (place >= 0 && place < size) {
      if (!value.is_string()) return value.items()[static_cast<std::size_t>(place)];
      const std::size_t at = byte_of(value.text(), place);
      return Value(value.text().substr(at, character_bytes(value.text(), at)));
    }
  }
  const std::string name =
      key.is_string() || key.is_number() ? to_repr(key) : std::string(key.type_name());
  return Value::undefined(fmt::format("the {} has no item {}", value.type_name(), name));
}

Value slice_of(const Value& value, const Value& begin, const Value& end, const Value& step) {
  check_defined(value);
  if (!value.is_string() && !value.is_indexed()) {
    return Value::undefined(fmt::format("a {} has no slices", value.type_name()));
  }
  const std::int64_t by = step.is_none() ? 1 : step.is_whole() ? step.whole() : 0;
  if (by == 0) throw Refusal("the step of a slice must be a whole number other than 0");
  const Values characters = value.is_string() && by != 1 ? walked(value) : Values();
  const std::int64_t size = value.is_string() ? length(value.text()) : std::ssize(value.items());
  const std::int64_t first = slice_place(begin, size, by, by > 0 ? 0 : size - 1);
  const std::int64_t last = slice_place(end, size, by, by > 0 ? size : -1);
  if (value.is_string() && by == 1) {
    if (last <= first) return Value("");
    const std::size_t at = byte_of(value.text(), first);
    const std::size_t bytes = byte_of(std::string_view(value.text()).substr(at), last - first);
    return Value(value.text().substr(at, bytes));
  }
  const std::span<const Value> all = value.is_string() ? std::span(characters) : value.items();
  Values items;
  for (std::int64_t i = first; by > 0 ? i < last : i > last;) {
    items.push_back(all[static_cast<std::size_t>(i)]);
    if (__builtin_add_overflow(i, by, &i)) break;
  }
  return value.is_string() ? concatenated(items) : Value::sequence(value.kind(), std::move(items));
}

}  // namespace isthmus::jinja
