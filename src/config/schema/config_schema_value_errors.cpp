// SPDX-License-Identifier: Apache-2.0
#include "config/schema/config_schema_value_errors.h"

#include <fmt/format.h>

#include <cmath>

namespace isthmus::config {

Unexpected<ValueError> fail(const SourceValue& source, std::string code, std::string message,
                            std::string hint) {
  return Unexpected<ValueError>(
      ValueError{std::move(code), std::move(message), std::move(hint), source.place});
}

std::string quoted(const SourceValue& source, const ValueRule& rule) {
  return fmt::format("'{} = {}'", rule.name, shown(source));
}

Unexpected<ValueError> wrong_type(const SourceValue& source, const ValueRule& rule) {
  std::string hint;
  const auto* given = std::get_if<std::string>(&source.data);
  const bool is_text = given != nullptr;
  const bool is_number = is_text && parse_quantity(*given, Dimension::kFraction).has_value();
  if (is_number && (rule.type == Type::kInteger || rule.type == Type::kReal)) {
    hint = "write the number without quotes";
  } else if (is_text && rule.type == Type::kBool) {
    hint = "write true or false without quotes";
  }
  return fail(source, "E-TYPE",
              fmt::format("{}: must be {}, not {}", quoted(source, rule),
                          type_text(rule.type, rule.choices), type_name(source)),
              hint);
}

Unexpected<ValueError> out_of_range(const SourceValue& source, const ValueRule& rule) {
  return fail(source, "E-RANGE",
              fmt::format("{}: must be {}", quoted(source, rule), rule.range.text()));
}

Expected<Value, ValueError> checked_integer(const SourceValue& source, const ValueRule& rule,
                                            double value) {
  if (!std::isfinite(value) || std::floor(value) != value) {
    return fail(source, "E-RANGE", fmt::format("{}: must be a whole number", quoted(source, rule)));
  }
  if (!rule.range.contains(value)) {
    return out_of_range(source, rule);
  }
  return Value(static_cast<std::int64_t>(value));
}

Expected<Value, ValueError> checked_real(const SourceValue& source, const ValueRule& rule,
                                         double value) {
  if (!std::isfinite(value)) {
    return fail(source, "E-RANGE", fmt::format("{}: must be finite", quoted(source, rule)));
  }
  if (!rule.range.contains(value)) {
    return out_of_range(source, rule);
  }
  return Value(value);
}

Unexpected<ValueError> unit_error(const SourceValue& source, const ValueRule& rule,
                                  const UnitError& error) {
  switch (error.kind) {
    case UnitError::Kind::kMissing:
      return fail(source, "E-UNIT-MISSING", fmt::format("{} needs a unit", quoted(source, rule)),
                  error.hint);
    case UnitError::Kind::kWrong:
      return fail(source, "E-UNIT-WRONG", fmt::format("{}: {}", quoted(source, rule), error.text),
                  error.hint);
    case UnitError::Kind::kRange:
      return fail(source, "E-RANGE", fmt::format("{}: {}", quoted(source, rule), error.text),
                  error.hint);
    case UnitError::Kind::kNumber:
      break;
  }
  return fail(source, "E-VALUE", fmt::format("{}: {}", quoted(source, rule), error.text),
              error.hint);
}

}  // namespace isthmus::config
