// SPDX-License-Identifier: Apache-2.0
// Tolerant reading of single JSON values: a field of another type than expected counts as absent.
// It pulls in nlohmann/json.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "record/no_value.h"

namespace isthmus::report {

using Json = nlohmann::json;

/// The number under `key`, also from strings such as "NaN", "Infinity", "-inf". kNothing if there
/// is none.
[[nodiscard]] double number_of(const Json& value);
[[nodiscard]] double number_at(const Json& object, const char* key, double absent = kNothing);
[[nodiscard]] std::int64_t integer_at(const Json& object, const char* key, std::int64_t absent);
[[nodiscard]] std::string text_at(const Json& object, const char* key);
/// False if absent.
[[nodiscard]] bool flag_at(const Json& object, const char* key);
/// The array or object under `key`; an empty one if absent. Valid as long as `object`.
[[nodiscard]] const Json& list_at(const Json& object, const char* key);
[[nodiscard]] const Json& object_at(const Json& object, const char* key);
/// A scalar as text ("null" for null), for tables of a file's whole content.
[[nodiscard]] std::string scalar_text(const Json& value);

}  // namespace isthmus::report
