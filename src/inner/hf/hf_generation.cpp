// SPDX-License-Identifier: Apache-2.0
#include "inner/hf/hf_generation.h"

#include <fmt/format.h>

#include <array>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/base/json_input.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

using nlohmann::json;

[[noreturn]] void refuse(const std::string& label, const char* key, const json& value,
                         const char* rule) {
  throw ConfigError(fmt::format("{}: {} = {}: must be {}", label, key, value.dump(), rule));
}

json object_of(const Storage& storage, const std::filesystem::path& file) {
  if (storage.kind(file) != FileKind::kFile) return json::object();
  json value = parse_json(read_text(storage, file), file.string());
  if (!value.is_object()) throw ConfigError(file.string() + ": is not a JSON object");
  return value;
}

/// The value of a key that is there and not null.
const json* find(const json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::vector<std::int32_t> token_ids(const json& value, const std::string& label, const char* key) {
  std::vector<std::int32_t> ids;
  for (const json& each : value.is_array() ? value : json::array({value})) {
    const bool whole = each.is_number_integer() || each.is_number_unsigned();
    if (!whole || each < 0 || each > std::numeric_limits<std::int32_t>::max()) {
      refuse(label, key, value, "a token's id, or a list of them");
    }
    ids.push_back(each.get<std::int32_t>());
  }
  return ids;
}

std::optional<double> number(const json& object, const std::string& label, const char* key) {
  const json* const value = find(object, key);
  if (value == nullptr) return {};
  if (!value->is_number()) refuse(label, key, *value, "a number");
  return value->get<double>();
}

}  // namespace

HfGeneration read_hf_generation(const Storage& storage, const std::filesystem::path& folder) {
  HfGeneration generation;
  const std::array files = {folder / "generation_config.json", folder / "config.json"};
  for (const std::filesystem::path& file : files) {
    const json object = object_of(storage, file);
    if (const json* const ends = find(object, "eos_token_id")) {
      generation.end_tokens = token_ids(*ends, file.string(), "eos_token_id");
      break;
    }
  }
  const std::string label = files[0].string();
  const json settings = object_of(storage, files[0]);
  if (const json* const samples = find(settings, "do_sample")) {
    if (!samples->is_boolean()) refuse(label, "do_sample", *samples, "true or false");
    generation.samples = samples->get<bool>();
  }
  generation.temperature = number(settings, label, "temperature");
  generation.top_p = number(settings, label, "top_p");
  if (const std::optional<double> top_k = number(settings, label, "top_k")) {
    if (!(*top_k >= 0 && *top_k <= 1e9)) {
      refuse(label, "top_k", settings.at("top_k"), "a number from 0 to 1e9");
    }
    generation.top_k = static_cast<std::int64_t>(*top_k);
  }
  return generation;
}

}  // namespace isthmus
