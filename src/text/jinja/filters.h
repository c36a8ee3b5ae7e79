// SPDX-License-Identifier: Apache-2.0
// Filters of templates: "x | trim", "xs | map(attribute='name') | join(', ')". Pure functions,
// except that they use up generators; any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "text/jinja/arguments.h"

namespace isthmus::jinja {

[[nodiscard]] bool is_filter(std::string_view name);
/// REQUIRES: is_filter(name). THROWS: Refusal for an unsupported value or argument.
[[nodiscard]] Value filtered(std::string_view name, const Value& value, const Arguments& arguments);
/// Estimated work of the call, before it runs: about the number of bytes and values it traverses.
[[nodiscard]] std::int64_t filter_cost(std::string_view name, const Value& value,
                                       const Arguments& arguments);
/// Bytes of a text, items of a list or dict, 1 for others.
[[nodiscard]] std::int64_t shallow_size(const Value& value);

}  // namespace isthmus::jinja
