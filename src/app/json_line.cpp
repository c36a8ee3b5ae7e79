// SPDX-License-Identifier: Apache-2.0
#include "app/json_line.h"

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

/// Length of the valid UTF-8 sequence at the start of `text`, or 0.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  const std::size_t length = lead < 0x80                   ? 1
                             : lead >= 0xC2 && lead < 0xE0 ? 2
                             : lead >> 4 == 14             ? 3
                             : lead >= 0xF0 && lead < 0xF5 ? 4
                                                           : 0;
  if (length == 0 || length > text.size()) {
    return 0;
  }
  for (std::size_t i = 1; i < length; ++i) {
    if (byte(i) >> 6 != 2) {
      return 0;
    }
  }
  const bool overlong = (lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xF0 && byte(1) < 0x90);
  const bool surrogate = lead == 0xED && byte(1) >= 0xA0;
  const bool too_large = lead == 0xF4 && byte(1) >= 0x90;
  return overlong || surrogate || too_large ? 0 : length;
}

void append_quoted(std::string& out, std::string_view text) {
  out += '"';
  while (!text.empty()) {
    const char c = text.front();
    std::size_t taken = 1;
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(c));
    } else {
      taken = utf8_length(text);
      out += taken == 0 ? std::string_view("\uFFFD") : text.substr(0, taken);
      taken = std::max<std::size_t>(taken, 1);
    }
    text.remove_prefix(taken);
  }
  out += '"';
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

std::string json_quote(std::string_view text) {
  std::string quoted;
  append_quoted(quoted, text);
  return quoted;
}

std::string json_number(double value) {
  std::string text;
  append_real(text, value);
  return text;
}

std::string json_number(float value) {
  std::string text;
  append_real(text, value);
  return text;
}

void JsonLine::begin(std::string_view key) {
  if (text_.size() > 1) {
    text_ += ',';
  }
  append_quoted(text_, key);
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
  append_quoted(text_, value);
  return *this;
}

JsonLine& JsonLine::add_null(std::string_view key) { return add_raw(key, "null"); }

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
                   append_quoted(text, value);
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
