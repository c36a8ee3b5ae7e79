// SPDX-License-Identifier: Apache-2.0
// Checks one value of the file against its row's type and range, and converts it back to TOML text.
// Pure.
#pragma once

#include <string>
#include <string_view>

#include "config/schema/config_schema.h"
#include "isthmus/expected.h"

namespace isthmus::config {

struct ValueError {
  std::string code;
  std::string message;
  std::string hint;
  Place place;
};

/// The requirements of a row for a value.
struct ValueRule {
  std::string_view name;  // for messages
  Type type;
  Range range;
  std::string_view choices;
};

/// The value in the type that its row stores; kStepsNow gives a StepCount, a list of kOffsets
/// StepCounts.
[[nodiscard]] Expected<Value, ValueError> parse_value(const SourceValue& source,
                                                      const ValueRule& rule);

/// Whether `value` holds a share of the run, although its field takes only steps.
[[nodiscard]] bool needs_length_of_run(const Value& value, Type type);
/// `value` in the type of its field; shares of the run become steps of `total`.
[[nodiscard]] Value in_steps(const Value& value, Type type, std::int64_t total);
/// Steps between two events; a share of a short run is at least one step, since 0 means never.
[[nodiscard]] std::int64_t period_of(const StepCount& count, std::int64_t total);

/// TOML text that parses back to `value`; empty for no value.
[[nodiscard]] std::string toml_text(const Value& value, Type type);
/// A TOML basic string.
[[nodiscard]] std::string toml_quote(std::string_view text);
/// `text` made safe after "# ": on one line, without control characters or bytes that are not
/// UTF-8.
[[nodiscard]] std::string toml_comment(std::string_view text);

/// "an integer", "a rate", "one of a, b", for `explain`.
[[nodiscard]] std::string type_text(Type type, std::string_view choices);

}  // namespace isthmus::config
