// SPDX-License-Identifier: Apache-2.0
#include "record/json_line.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <iterator>

namespace isthmus::app {
namespace {

/// Shortest text that reads back to the same bits, as long as it is no longer than `digits` asks.
template <typename Real>
void append_real(std::string& text, Real value) {
  if (std::isnan(value)) {
    text += "\"nan\"";
  } else if (std::isinf(value)) {
    text += value > 0 ? "\"inf\"" : "\"-inf\"";
  } else {
    char buffer[64];
    const auto result = std::to_chars(buffer, buffer + sizeof buffer, value);
    text.append(buffer, result.ptr);
  }
}

template <typename Item, typename Append>
std::string list(std::span<const Item> items, const Append& append) {
  std::string text = "[";
  for (const Item& item : items) {
    if (text.size() > 1) {
      text += ',';
    }
    append(text, item);
  }
  return text + "]";
}

}  // namespace

void JsonLine::begin(std::string_view key) {
  if (text_.size() > 1) {
    text_ += ',';
  }
  append_json_quoted(text_, key);
  text_ += ':';
}

JsonLine& JsonLine::add(std::string_view key, double value) {
  begin(key);
  append_real(text_, value);
  return *this;
}

JsonLine& JsonLine::add(std::string_view key, float value) {
  begin(key);
  append_real(text_, value);
  return *this;
}

JsonLine& JsonLine::add_integer(std::string_view key, std::int64_t value) {
  begin(key);
  fmt::format_to(std::back_inserter(text_), "{}", value);
  return *this;
}

JsonLine& JsonLine::add_unsigned(std::string_view key, std::uint64_t value) {
  begin(key);
  fmt::format_to(std::back_inserter(text_), "{}", value);
  return *this;
}

JsonLine& JsonLine::add(std::string_view key, std::string_view value) {
  begin(key);
  append_json_quoted(text_, value);
  return *this;
}

JsonLine& JsonLine::add_null(std::string_view key) { return add_raw(key, "null"); }

JsonLine& JsonLine::add_or_null(std::string_view key, double value) {
  return std::isnan(value) ? add_null(key) : add(key, value);
}

JsonLine& JsonLine::add_or_null(std::string_view key, std::string_view value) {
  return value.empty() ? add_null(key) : add(key, value);
}

JsonLine& JsonLine::add(std::string_view key, std::span<const double> values) {
  return add_raw(key,
                 list(values, [](std::string& text, double value) { append_real(text, value); }));
}

JsonLine& JsonLine::add(std::string_view key, std::span<const std::uint64_t> values) {
  return add_raw(key, list(values, [](std::string& text, std::uint64_t value) {
                   fmt::format_to(std::back_inserter(text), "{}", value);
                 }));
}

JsonLine& JsonLine::add(std::string_view key, std::span<const std::string> values) {
  return add_raw(key, list(values, [](std::string& text, const std::string& value) {
                   append_json_quoted(text, value);
                 }));
}

JsonLine& JsonLine::add_raw(std::string_view key, std::string_view json) {
  begin(key);
  text_ += json;
  return *this;
}

std::string json_array(std::span<const std::string> parts) {
  return list(parts, [](std::string& text, const std::string& part) { text += part; });
}

}  // namespace isthmus::app
