// SPDX-License-Identifier: Apache-2.0
// Operators of expressions, as Python computes them; whole numbers have 64 bits. Pure functions.
// THROWS (all): Refusal for operands that have no such operator, and for results beyond limits.
#pragma once

#include <span>
#include <string_view>

#include "text/jinja/nodes.h"
#include "text/jinja/value.h"

namespace isthmus::jinja {

/// op: kAdd to kPower.
[[nodiscard]] Value computed(Op op, const Value& a, const Value& b);
[[nodiscard]] Value negative(const Value& value);
/// a ~ b ~ ...: their texts.
[[nodiscard]] Value concatenated(std::span<const Value> values);
[[nodiscard]] bool compared(Comparison comparison, const Value& a, const Value& b);
/// Whether a sorts before b.
[[nodiscard]] bool less(const Value& a, const Value& b);
/// value[key], where there is such an item; nothing is undefined.
[[nodiscard]] Value item_of(const Value& value, const Value& key);
/// value[begin:end:step], of which each may be none.
[[nodiscard]] Value slice_of(const Value& value, const Value& begin, const Value& end,
                             const Value& step);
/// "'x' is undefined" becomes a refusal; other values do nothing.
void check_defined(const Value& value);

}  // namespace isthmus::jinja
