// SPDX-License-Identifier: Apache-2.0
#include "report/json_fields.h"

#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <sstream>
#include <system_error>

namespace isthmus::report {
namespace {

// A document larger than this is not one of ours; metrics and events are read line by line instead.
constexpr std::uintmax_t kMaxDocumentBytes = std::uintmax_t{64} << 20;

double number_of_text(const std::string& text) {
  std::string lower;
  for (const char c : text) {
    lower += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  }
  if (lower == "inf" || lower == "+inf" || lower == "infinity") {
    return std::numeric_limits<double>::infinity();
  }
  if (lower == "-inf" || lower == "-infinity") {
    return -std::numeric_limits<double>::infinity();
  }
  return kNothing;
}

}  // namespace

double number_of(const Json& value) {
  if (value.is_number()) {
    return value.get<double>();
  }
  if (value.is_string()) {
    return number_of_text(value.get_ref<const std::string&>());
  }
  return kNothing;
}

double number_at(const Json& object, const char* key, double absent) {
  const auto found = object.find(key);
  if (found == object.end() || !(found->is_number() || found->is_string())) {
    return absent;
  }
  return number_of(*found);
}

std::int64_t integer_at(const Json& object, const char* key, std::int64_t absent) {
  const double value = number_at(object, key);
  // 2^53: larger doubles are no longer exact integers.
  if (!std::isfinite(value) || std::abs(value) > 9007199254740992.0) {
    return absent;
  }
  return static_cast<std::int64_t>(value);
}

std::string text_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string{};
}

std::string scalar_text(const Json& value) {
  if (value.is_string()) {
    return value.get<std::string>();
  }
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

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
  Json parsed = Json::parse(text.str(), nullptr, false);
  if (parsed.is_discarded() || !parsed.is_object()) {
    run.warnings.push_back(fmt::format("{} is damaged (not a JSON object): not used", name));
    return Json(Json::value_t::discarded);
  }
  return parsed;
}

std::optional<SpanKind> span_kind(const std::string& name) {
  for (int kind = 0; kind < kSpanKinds; ++kind) {
    if (name == span_name(static_cast<SpanKind>(kind))) {
      return static_cast<SpanKind>(kind);
    }
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
