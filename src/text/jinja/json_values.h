// SPDX-License-Identifier: Apache-2.0
// Values from JSON and back, as Python's json has them: the keys of an object stay in their order.
// Pure functions; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/jinja/value.h"

namespace isthmus::jinja {

/// The value of a JSON document; of equal keys the last value counts. `label` names it. Fuzzed.
/// THROWS: SystemError "LABEL: ..." for what is no JSON, is nested deeper than 64 levels, or has a
/// whole number beyond 64 bits.
[[nodiscard]] Value value_of_json(std::string_view json, const std::string& label);

/// Arguments of json.dumps.
struct JsonStyle {
  bool ascii = false;                 // ensure_ascii
  std::optional<std::string> indent;  // of a level: "  "
  std::string between_items = ", ";   // separators
  std::string behind_key = ": ";
  bool sort_keys = false;
};
/// THROWS: Refusal for what JSON has not, or a text that is too large.
[[nodiscard]] std::string to_json(const Value& value, const JsonStyle& style);

}  // namespace isthmus::jinja
