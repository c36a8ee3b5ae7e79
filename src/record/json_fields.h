// SPDX-License-Identifier: Apache-2.0
// The fields of a struct as one JSON object: a single list of names both writes and reads them. The
// list is a template function `fields(io, value)` that calls `io(NAME, value.member)` for each
// field in the order of the object; `io` is a JsonFieldWriter with a constant value, or a
// JsonFieldReader. It pulls in nlohmann/json.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/base/json_input.h"
#include "record/json_line.h"
#include "record/json_values.h"

namespace isthmus::app {

/// Whether an `io` of this type reads, where a list of fields has to do more for it.
template <typename Io>
inline constexpr bool kReads = std::remove_cvref_t<Io>::kReads;

/// Writes a field behind those before it.
class JsonFieldWriter {
 public:
  static constexpr bool kReads = false;

  /// Numbers, flags and texts.
  template <typename T>
  void operator()(const char* key, const T& value) {
    line_.add(key, value);
  }
  /// Null for no value.
  void operator()(const char* key, const std::optional<double>& value) {
    line_.add_or_null(key, value);
  }
  /// What no reader needs.
  template <typename T>
  void derived(const char* key, const T& value) {
    line_.add(key, value);
  }
  [[nodiscard]] bool has(const char*) const { return true; }
  template <typename T, typename Fields>
  void object(const char* key, const T& value, const Fields& fields) {
    line_.add(key, written(value, fields));
  }
  /// Absent without a value.
  template <typename T, typename Fields>
  void object(const char* key, const std::optional<T>& value, const Fields& fields) {
    if (value) object(key, *value, fields);
  }
  template <typename T, typename Fields>
  void list(const char* key, const std::vector<T>& items, const Fields& fields) {
    line_.add_list(key, items, [&](const T& item) { return written(item, fields); });
  }
  /// A list of objects, each with its number under `name`.
  template <typename T, typename Fields>
  void numbered(const char* key, const char* name, const std::map<std::int64_t, T>& items,
                const Fields& fields) {
    line_.add_list(key, items, [&](const auto& item) {
      JsonFieldWriter writer;
      writer(name, item.first);
      fields(writer, item.second);
      return writer.line_;
    });
  }

  [[nodiscard]] const JsonLine& line() const { return line_; }

 private:
  template <typename T, typename Fields>
  static JsonLine written(const T& value, const Fields& fields) {
    JsonFieldWriter writer;
    fields(writer, value);
    return writer.line_;
  }
  JsonLine line_;
};

/// Reads the same fields from `json`, which it borrows. Its functions throw nlohmann's exceptions
/// for a field that is absent or of another type, and std::out_of_range for an integer that does
/// not fit.
class JsonFieldReader {
 public:
  static constexpr bool kReads = true;
  using Text = std::string (*)(std::string);

  /// of_text: what is done to every text, if anything.
  explicit JsonFieldReader(const nlohmann::json& json, Text of_text = nullptr)
      : json_(json), text_(of_text) {}

  template <typename T>
  void operator()(const char* key, T& value) const {
    const nlohmann::json& found = json_.at(key);
    if constexpr (std::is_same_v<T, std::string>) {
      value = text(found.get<std::string>());
    } else if constexpr (std::is_same_v<T, bool>) {
      value = found.get<bool>();
    } else if constexpr (std::is_same_v<T, double>) {
      value = real(found);
    } else if constexpr (std::is_same_v<T, std::optional<double>>) {
      value = found.is_null() ? std::nullopt : std::optional(real(found));
    } else {
      value = whole_number<T>(found);
    }
  }
  template <typename T>
  void derived(const char*, const T&) const {}
  [[nodiscard]] bool has(const char* key) const { return json_.contains(key); }
  template <typename T, typename Fields>
  void object(const char* key, T& value, const Fields& fields) const {
    const JsonFieldReader reader(json_.at(key), text_);
    fields(reader, value);
  }
  template <typename T, typename Fields>
  void object(const char* key, std::optional<T>& value, const Fields& fields) const {
    if (has(key)) object(key, value.emplace(), fields);
  }
  template <typename T, typename Fields>
  void list(const char* key, std::vector<T>& items, const Fields& fields) const {
    for (const nlohmann::json& each : json_.at(key)) {
      const JsonFieldReader reader(each, text_);
      fields(reader, items.emplace_back());
    }
  }
  template <typename T, typename Fields>
  void numbered(const char* key, const char* name, std::map<std::int64_t, T>& items,
                const Fields& fields) const {
    for (const nlohmann::json& each : json_.at(key)) {
      const JsonFieldReader reader(each, text_);
      fields(reader, items[whole_number<std::int64_t>(each.at(name))]);
    }
  }

  [[nodiscard]] const nlohmann::json& json() const { return json_; }
  [[nodiscard]] std::string text(std::string given) const {
    return text_ == nullptr ? given : text_(std::move(given));
  }
  /// A number as JsonLine writes it.
  [[nodiscard]] static double real(const nlohmann::json& json) {
    return json.is_string() ? report::number_of(json) : json.get<double>();
  }

 private:
  const nlohmann::json& json_;
  Text text_;
};

}  // namespace isthmus::app
