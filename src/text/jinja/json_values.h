// SPDX-License-Identifier: Apache-2.0
// Converts JSON to values and back as Python's json does: the keys of an object keep their order.
// Pure functions; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/jinja/value.h"

namespace isthmus::jinja {

/// The value of a JSON document; of equal keys the last value counts. `label` names it. Fuzzed.
/// THROWS: SystemError "LABEL: ..." for invalid JSON, nesting deeper than 64 levels, or an integer
/// beyond 64 bits.
[[nodiscard]] Value value_of_json(std::string_view json, const std::string& label);

/// Arguments of json.dumps.
struct JsonStyle {
  bool ascii = false;                 // ensure_ascii
  std::optional<std::string> indent;  // of a level: "  "
  std::string between_items = ", ";   // separators
  std::string behind_key = ": ";
  bool sort_keys = false;
};
/// THROWS: Refusal for values that JSON does not have, or a text that is too large.
[[nodiscard]] std::string to_json(const Value& value, const JsonStyle& style);

}  // namespace isthmus::jinja
