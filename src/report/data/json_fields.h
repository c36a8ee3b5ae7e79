// SPDX-License-Identifier: Apache-2.0
// Tolerant reading of JSON that may be damaged: a field of another type than expected counts as
// absent. Included by the files that parse run directories only; it pulls in nlohmann/json.
#pragma once

#include <optional>
#include <string>

#include "record/json_values.h"
#include "report/data/run_data.h"

namespace isthmus::report {

/// The kind that events.jsonl calls `name` ("compute", "send", ...), or nothing.
[[nodiscard]] std::optional<SpanKind> span_kind(const std::string& name);
/// The span in a line of events.jsonl; nothing if it is of another kind, has no worker, or no
/// ordered times.
[[nodiscard]] std::optional<Span> span_of(const Json& line);
/// The whole file parsed; discarded, with a warning in `run`, if it is missing, damaged, no JSON
/// object, or larger than 64 MiB.
[[nodiscard]] Json parse_file(const std::filesystem::path& file, RunData& run);

}  // namespace isthmus::report
