// SPDX-License-Identifier: Apache-2.0
#include "report/data/json_fields.h"

#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <sstream>
#include <system_error>

#include "core/base/json_input.h"
#include "record/event_log.h"

namespace isthmus::report {
namespace {

// A document larger than this is not one of ours; metrics and events are read line by line instead.
constexpr std::uintmax_t kMaxDocumentBytes = std::uintmax_t{64} << 20;

}  // namespace

Json parse_file(const std::filesystem::path& file, RunData& run) {
  std::error_code error;
  const std::uintmax_t bytes = std::filesystem::file_size(file, error);
  const std::string name = file.filename().string();
  if (error) {
    run.warnings.push_back(fmt::format("{} is missing: what it would say is left out", name));
    return Json(Json::value_t::discarded);
  }
  if (bytes > kMaxDocumentBytes) {
    run.warnings.push_back(
        fmt::format("{} is {} bytes long, more than a run writes: not read", name, bytes));
    return Json(Json::value_t::discarded);
  }
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  Json parsed = read_json(text.str());
  if (parsed.is_discarded() || !parsed.is_object()) {
    run.warnings.push_back(fmt::format("{} is damaged (not a JSON object): not used", name));
    return Json(Json::value_t::discarded);
  }
  return parsed;
}

std::optional<SpanKind> span_kind(const std::string& name) {
  for (int i = 0; i < kSpanKinds; ++i) {
    if (const auto kind = static_cast<SpanKind>(i); app::event_name(kind) == name) return kind;
  }
  return std::nullopt;
}

std::optional<Span> span_of(const Json& line) {
  const std::optional<SpanKind> kind = span_kind(text_at(line, "k"));
  if (!kind) {
    return std::nullopt;
  }
  const Span span{.kind = *kind,
                  .worker = static_cast<int>(integer_at(line, "w", -1)),
                  .peer = static_cast<int>(integer_at(line, "peer", -1)),
                  .begin_s = number_at(line, "t0"),
                  .end_s = number_at(line, "t1"),
                  .bytes = number_at(line, "bytes", 0),
                  .fragment = integer_at(line, "frag", -1),
                  .step = integer_at(line, "step", 0)};
  const bool usable = span.worker >= 0 && std::isfinite(span.begin_s) &&
                      std::isfinite(span.end_s) && span.end_s >= span.begin_s;
  return usable ? std::optional(span) : std::nullopt;
}

}  // namespace isthmus::report
