// SPDX-License-Identifier: Apache-2.0
// One JSON object on one line, written in order and fast: the form of metrics.jsonl, events.jsonl
// and every --json answer. Floats keep their bits (float: 9 significant digits, double: 17 if fewer
// do not); non-finite numbers become the strings "nan", "inf", "-inf", since JSON has none.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "core/base/utf8_text.h"

namespace isthmus::app {

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
  JsonLine& add_null(std::string_view key);
  /// Arrays of numbers and texts.
  JsonLine& add(std::string_view key, std::span<const double> values);
  JsonLine& add(std::string_view key, std::span<const std::uint64_t> values);
  JsonLine& add(std::string_view key, std::span<const std::string> values);
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

/// "[a,b,c]" from parts that are JSON already.
[[nodiscard]] std::string json_array(std::span<const std::string> parts);

}  // namespace isthmus::app
