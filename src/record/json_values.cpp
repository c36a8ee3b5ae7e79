// SPDX-License-Identifier: Apache-2.0
#include "record/json_values.h"

#include <cmath>

namespace isthmus::report {
namespace {

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

bool flag_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_boolean() && found->get<bool>();
}

const Json& list_at(const Json& object, const char* key) {
  static const Json kNone = Json::array();
  const auto found = object.find(key);
  return found != object.end() && found->is_array() ? *found : kNone;
}

const Json& object_at(const Json& object, const char* key) {
  static const Json kNone = Json::object();
  const auto found = object.find(key);
  return found != object.end() && found->is_object() ? *found : kNone;
}

std::string scalar_text(const Json& value) {
  if (value.is_string()) {
    return value.get<std::string>();
  }
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace isthmus::report
