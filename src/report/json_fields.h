// SPDX-License-Identifier: Apache-2.0
// Tolerant reading of JSON that may be damaged: a field of another type than expected counts as
// absent. Included by the files that parse run directories only; it pulls in nlohmann/json.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "report/run_data.h"

namespace isthmus::report {

using Json = nlohmann::json;

/// The number under `key`; "NaN", "Infinity", "-inf" as strings too. kNothing when there is none.
[[nodiscard]] double number_of(const Json& value);
[[nodiscard]] double number_at(const Json& object, const char* key, double absent = kNothing);
[[nodiscard]] std::int64_t integer_at(const Json& object, const char* key, std::int64_t absent);
[[nodiscard]] std::string text_at(const Json& object, const char* key);
/// A scalar as text ("null" for null), for tables of everything a file says.
[[nodiscard]] std::string scalar_text(const Json& value);
/// The kind of that name, or nothing.
[[nodiscard]] std::optional<SpanKind> span_kind(const std::string& name);
/// The span that a line of events.jsonl tells of; nothing where it is of another kind, or has no
/// worker, or no times in order.
[[nodiscard]] std::optional<Span> span_of(const Json& line);
/// The whole file parsed; discarded, with a warning in `run`, when it is absent or damaged.
[[nodiscard]] Json parse_file(const std::filesystem::path& file, RunData& run);

}  // namespace isthmus::report
