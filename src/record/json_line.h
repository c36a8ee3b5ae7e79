// SPDX-License-Identifier: Apache-2.0
// One JSON object on one line, written in order and fast: the form of metrics.jsonl, events.jsonl
// and every --json answer. Floats keep their bits (float: 9 significant digits, double: 17 if fewer
// do not); non-finite numbers become the strings "nan", "inf", "-inf", since JSON has none.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/base/utf8_text.h"

namespace isthmus::app {

/// "[a,b,c]" from parts that are JSON already.
[[nodiscard]] std::string json_array(std::span<const std::string> parts);
/// The same of `json_of(item)` for each item: a JsonLine, or text that is JSON already.
template <typename Items, typename JsonOf>
[[nodiscard]] std::string json_list(const Items& items, const JsonOf& json_of) {
  std::vector<std::string> parts;
  for (const auto& item : items) {
    if constexpr (requires { json_of(item).str(); }) {
      parts.push_back(json_of(item).str());
    } else {
      parts.push_back(json_of(item));
    }
  }
  return json_array(parts);
}

class JsonLine {
 public:
  JsonLine& add(std::string_view key, double value);
  JsonLine& add(std::string_view key, float value);
  template <std::integral T>
  JsonLine& add(std::string_view key, T value) {
    if constexpr (std::same_as<T, bool>) {
      return add_raw(key, value ? "true" : "false");
    } else if constexpr (std::is_signed_v<T>) {
      return add_integer(key, value);
    } else {
      return add_unsigned(key, value);
    }
  }
  JsonLine& add(std::string_view key, std::string_view value);
  JsonLine& add(std::string_view key, const char* value) {
    return add(key, std::string_view(value));
  }
  JsonLine& add(std::string_view key, const JsonLine& object) {
    return add_raw(key, object.text_ + "}");
  }
  JsonLine& add_null(std::string_view key);
  /// Null in the place of no value, of NaN or of an empty text.
  template <typename T>
  JsonLine& add_or_null(std::string_view key, const std::optional<T>& value) {
    return value ? add(key, *value) : add_null(key);
  }
  JsonLine& add_or_null(std::string_view key, double value);
  JsonLine& add_or_null(std::string_view key, std::string_view value);
  /// Arrays of numbers and texts.
  JsonLine& add(std::string_view key, std::span<const double> values);
  JsonLine& add(std::string_view key, std::span<const std::uint64_t> values);
  JsonLine& add(std::string_view key, std::span<const std::string> values);
  /// An array with `json_of(item)` for each item: a JsonLine, or text that is JSON already.
  template <typename Items, typename JsonOf>
  JsonLine& add_list(std::string_view key, const Items& items, const JsonOf& json_of) {
    return add_raw(key, json_list(items, json_of));
  }
  /// `json` must already be JSON: a nested object or array.
  JsonLine& add_raw(std::string_view key, std::string_view json);

  /// "{...}" without a newline.
  [[nodiscard]] std::string str() const { return text_ + "}"; }

 private:
  JsonLine& add_integer(std::string_view key, std::int64_t value);
  JsonLine& add_unsigned(std::string_view key, std::uint64_t value);
  void begin(std::string_view key);
  std::string text_ = "{";
};

}  // namespace isthmus::app
