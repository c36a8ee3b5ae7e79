// SPDX-License-Identifier: Apache-2.0
// Operators of expressions with Python's semantics; integers have 64 bits. Pure functions. THROWS
// (all): Refusal for operands without such an operator, and for results beyond limits.
#pragma once

#include <span>
#include <string_view>

#include "text/jinja/nodes.h"
#include "text/jinja/value.h"

namespace isthmus::jinja {

/// op: kAdd to kPower.
[[nodiscard]] Value computed(Op op, const Value& a, const Value& b);
[[nodiscard]] Value negative(const Value& value);
/// a ~ b ~ ...: the concatenated texts.
[[nodiscard]] Value concatenated(std::span<const Value> values);
[[nodiscard]] bool compared(Comparison comparison, const Value& a, const Value& b);
/// True if a sorts before b.
[[nodiscard]] bool less(const Value& a, const Value& b);
/// value[key]; undefined if there is no such item.
[[nodiscard]] Value item_of(const Value& value, const Value& key);
/// value[begin:end:step]; each bound may be none.
[[nodiscard]] Value slice_of(const Value& value, const Value& begin, const Value& end,
                             const Value& step);
/// THROWS: Refusal "'x' is undefined" for an undefined value; no effect for others.
void check_defined(const Value& value);

}  // namespace isthmus::jinja
