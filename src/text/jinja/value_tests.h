// SPDX-License-Identifier: Apache-2.0
// Tests of templates: "x is defined", "x is mapping". Pure functions; any thread.
#pragma once

#include <string_view>

#include "text/jinja/arguments.h"

namespace isthmus::jinja {

[[nodiscard]] bool is_test(std::string_view name);
/// REQUIRES: is_test(name). THROWS: Refusal for unsupported arguments.
[[nodiscard]] bool passes_test(std::string_view name, const Value& value,
                               const Arguments& arguments);

}  // namespace isthmus::jinja
