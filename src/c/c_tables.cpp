// SPDX-License-Identifier: Apache-2.0
// The abilities of this build, and configurations, as JSON.
#include "c/c_tables.h"

#include <toml++/toml.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "c/c_errors.h"
#include "isthmus/codec.h"
#include "isthmus/config.h"
#include "isthmus/errors.h"
#include "isthmus/outer.h"
#include "isthmus/session.h"

namespace isthmus::c {

using Json = nlohmann::ordered_json;

std::string json_of_toml(std::string_view text, std::string_view name) {
  std::ostringstream out;
  try {
    out << toml::json_formatter(toml::parse(text, name));
  } catch (const toml::parse_error& error) {
    throw ConfigError(std::string(name) + ":" + std::to_string(error.source().begin.line) + ": " +
                      std::string(error.description()));
  }
  return out.str();
}

}  // namespace isthmus::c

using isthmus::c::guarded;
using isthmus::c::Json;
using isthmus::c::owned_text;
using isthmus::c::require;

namespace {

/// `*json` := an array with `row(item)` of each item.
template <typename Items, typename Row>
isthmus_error* table(const char* function, char** json, const Items& items, const Row& row) {
  return guarded([&] {
    require(json, function, "json");
    auto array = Json::array();
    for (const auto& item : items()) array.push_back(row(item));
    *json = owned_text(array.dump());
  });
}

}  // namespace

int32_t isthmus_abi() { return ISTHMUS_ABI; }
const char* isthmus_version() { return ISTHMUS_VERSION; }

isthmus_error* isthmus_methods(char** json) {
  return table("isthmus_methods", json, isthmus::methods, [](const isthmus::MethodInfo& method) {
    return Json{{"name", method.name},
                {"text", method.summary},
                {"source", method.source},
                {"deviations", method.deviations},
                {"keys", method.keys},
                {"default_lr", method.default_lr},
                {"default_momentum", method.default_momentum},
                {"default_alpha", method.default_alpha},
                {"state_values", method.state_values}};
  });
}

isthmus_error* isthmus_codecs(char** json) {
  return table("isthmus_codecs", json, isthmus::codecs, [](const isthmus::CodecInfo& codec) {
    return Json{
        {"name", codec.name}, {"text", codec.summary}, {"bits_per_value", codec.bits_per_value}};
  });
}

isthmus_error* isthmus_keys(char** json) {
  return table("isthmus_keys", json, isthmus::config_keys, [](const isthmus::KeyInfo& key) {
    return Json{{"name", key.name},      {"type", key.type}, {"default", key.default_value},
                {"range", key.range},    {"text", key.text}, {"used_by", key.used_by},
                {"example", key.example}};
  });
}

isthmus_error* isthmus_config_load(const char* path, const char* const* overrides, size_t count,
                                   char** json) {
  return guarded([&] {
    require(path, "isthmus_config_load", "path");
    require(json, "isthmus_config_load", "json");
    const isthmus::Config config =
        isthmus::load_run(path, isthmus::c::texts_of(overrides, count, "isthmus_config_load"));
    *json = owned_text(isthmus::c::json_of_toml(isthmus::resolved_toml(config), path));
  });
}

isthmus_error* isthmus_toml_to_json(const char* toml, const char* name, char** json) {
  return guarded([&] {
    require(toml, "isthmus_toml_to_json", "toml");
    require(name, "isthmus_toml_to_json", "name");
    require(json, "isthmus_toml_to_json", "json");
    *json = owned_text(isthmus::c::json_of_toml(toml, name));
  });
}
