// SPDX-License-Identifier: Apache-2.0
// The abilities of this build, and configurations, as JSON.
#include "c/c_tables.h"

#include <toml++/toml.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

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

int32_t isthmus_abi() { return ISTHMUS_ABI; }
const char* isthmus_version() { return ISTHMUS_VERSION; }

isthmus_error* isthmus_methods(char** json) {
  return guarded([&] {
    require(json, "isthmus_methods", "json");
    auto array = Json::array();
    for (const isthmus::MethodInfo& method : isthmus::methods()) {
      array.push_back({{"name", method.name},
                       {"text", method.summary},
                       {"source", method.source},
                       {"deviations", method.deviations},
                       {"keys", method.keys},
                       {"default_lr", method.default_lr},
                       {"default_momentum", method.default_momentum},
                       {"default_alpha", method.default_alpha},
                       {"state_values", method.state_values}});
    }
    *json = owned_text(array.dump());
  });
}

isthmus_error* isthmus_codecs(char** json) {
  return guarded([&] {
    require(json, "isthmus_codecs", "json");
    auto array = Json::array();
    for (const isthmus::CodecInfo& codec : isthmus::codecs()) {
      array.push_back({{"name", codec.name},
                       {"text", codec.summary},
                       {"bits_per_value", codec.bits_per_value}});
    }
    *json = owned_text(array.dump());
  });
}

isthmus_error* isthmus_keys(char** json) {
  return guarded([&] {
    require(json, "isthmus_keys", "json");
    auto array = Json::array();
    for (const isthmus::KeyInfo& key : isthmus::config_keys()) {
      array.push_back({{"name", key.name},
                       {"type", key.type},
                       {"default", key.default_value},
                       {"range", key.range},
                       {"text", key.text},
                       {"used_by", key.used_by},
                       {"example", key.example}});
    }
    *json = owned_text(array.dump());
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
