// SPDX-License-Identifier: Apache-2.0
// Error texts for one value of the file. Pure.
#pragma once

#include <string>

#include "config/schema/config_schema_values.h"
#include "core/base/units.h"

namespace isthmus::config {

[[nodiscard]] Unexpected<ValueError> fail(const SourceValue& source, std::string code,
                                          std::string message, std::string hint = {});
/// 'outer.H = 0'
[[nodiscard]] std::string quoted(const SourceValue& source, const ValueRule& rule);
[[nodiscard]] Unexpected<ValueError> wrong_type(const SourceValue& source, const ValueRule& rule);
[[nodiscard]] Unexpected<ValueError> out_of_range(const SourceValue& source, const ValueRule& rule);
[[nodiscard]] Unexpected<ValueError> unit_error(const SourceValue& source, const ValueRule& rule,
                                                const UnitError& error);

/// `value` if it is an integer (or finite), and in the rule's range.
[[nodiscard]] Expected<Value, ValueError> checked_integer(const SourceValue& source,
                                                          const ValueRule& rule, double value);
[[nodiscard]] Expected<Value, ValueError> checked_real(const SourceValue& source,
                                                       const ValueRule& rule, double value);

}  // namespace isthmus::config
