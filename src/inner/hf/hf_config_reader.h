// SPDX-License-Identifier: Apache-2.0
// Reads the keys of a config.json and collects all defects. Private to hf_config_read.cpp and
// hf_families.cpp, because nlohmann/json.hpp must stay out of headers that others include.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "isthmus/config.h"
#include "isthmus/errors.h"

namespace isthmus {

inline constexpr std::int64_t kLargestHfSize = std::numeric_limits<std::int32_t>::max();

// Reads keys and collects defects, so that one error shows all of them.
class HfConfigReader {
 public:
  HfConfigReader(const nlohmann::json& document, std::string label)
      : document_(document), label_(std::move(label)) {}

  /// Null counts as absent, as the libraries write it.
  [[nodiscard]] const nlohmann::json* find(const char* key) const {
    const auto found = document_.find(key);
    return found == document_.end() || found->is_null() ? nullptr : &*found;
  }

  /// True if the key is present, with any value.
  [[nodiscard]] bool has(const char* key) const { return document_.contains(key); }

  std::int64_t size(const char* key, std::optional<std::int64_t> fallback = {}) {
    const nlohmann::json* value = find(key);
    if (value == nullptr) {
      if (!fallback) defects_.push_back(fmt::format("{} is missing", key));
      return fallback.value_or(1);
    }
    if (!value->is_number_unsigned() || *value < 1 || *value > kLargestHfSize) {
      refuse(key, *value, "must be a whole number from 1 to 2147483647");
      return 1;
    }
    return value->get<std::int64_t>();
  }

  double positive(const nlohmann::json* value, const std::string& key, double fallback) {
    if (value == nullptr || value->is_null()) return fallback;
    if (!value->is_number() || !std::isfinite(value->get<double>()) || value->get<double>() <= 0) {
      refuse(key, *value, "must be a positive number");
      return fallback;
    }
    return value->get<double>();
  }

  /// A positive number; 0 if the key is null, `fallback` if it is absent.
  double positive_or_none(const char* key, double fallback) {
    if (!has(key)) return fallback;
    return find(key) == nullptr ? 0 : positive(find(key), key, 1);
  }

  bool flag(const char* key, bool fallback) {
    const nlohmann::json* value = find(key);
    if (value == nullptr) return fallback;
    if (!value->is_boolean()) {
      refuse(key, *value, "must be true or false");
      return fallback;
    }
    return value->get<bool>();
  }

  /// If present, the key must have one of the values that our models implement.
  void supported(const char* key, const std::vector<nlohmann::json>& values) {
    const nlohmann::json* value = find(key);
    if (value == nullptr) return;
    std::string choices;
    for (const nlohmann::json& choice : values) {
      if (*value == choice) return;
      choices += (choices.empty() ? "" : " or ") + choice.dump();
    }
    refuse(key, *value, fmt::format("is not supported; only {} is", choices));
  }

  /// If present, the key must be a token id, a list of ids or null.
  void check_tokens(const char* key) {
    const nlohmann::json* value = find(key);
    if (value == nullptr) return;
    const bool ids = value->is_array() ? std::ranges::all_of(*value, is_id) : is_id(*value);
    if (!ids) refuse(key, *value, "must be a token id, a list of them or null");
  }

  void refuse(const std::string& key, const nlohmann::json& value, const std::string& rule) {
    std::string shown = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    if (shown.size() > 60) shown = shown.substr(0, 60) + "...";
    defects_.push_back(fmt::format("{} = {} {}", key, shown, rule));
  }

  void missing(const std::string& key, const std::string& rule) {
    defects_.push_back(fmt::format("{} is missing; {}", key, rule));
  }

  void finish() const {
    if (defects_.empty()) return;
    throw ConfigError(fmt::format("{}: {}", label_, fmt::join(defects_, "; ")));
  }

  /// What finish() would throw for a defect that the whole of the keys shows.
  [[nodiscard]] ConfigError defect(std::string_view text) const {
    return ConfigError(fmt::format("{}: {}", label_, text));
  }

 private:
  static bool is_id(const nlohmann::json& value) { return value.is_number_integer(); }

  const nlohmann::json& document_;
  std::string label_;
  std::vector<std::string> defects_;
};

/// Adds the missing spelling of rotary embedding, of transformers 4 (rope_theta, rope_scaling) or 5
/// (rope_parameters): each version would use defaults if its spelling were missing.
void add_both_rope_spellings(const ModelConfig& model, nlohmann::json& settings);

}  // namespace isthmus
