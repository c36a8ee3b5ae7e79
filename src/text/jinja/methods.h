// SPDX-License-Identifier: Apache-2.0
// Methods of texts, dicts and lists that a template may call: only methods that change nothing.
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "text/jinja/arguments.h"

namespace isthmus::jinja {

/// True if Python's object has the method, supported or not.
[[nodiscard]] bool has_method(const Value& value, std::string_view name);
/// REQUIRES: has_method(value, name). THROWS: Refusal for a method that is not supported or changes
/// the object, and for unsupported arguments.
[[nodiscard]] Value call_method(const Value& value, std::string_view name,
                                const Arguments& arguments);
/// Estimated work of the call, before it runs.
[[nodiscard]] std::int64_t method_cost(const Value& value, const Arguments& arguments);

}  // namespace isthmus::jinja
