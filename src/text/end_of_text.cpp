// SPDX-License-Identifier: Apache-2.0
#include "text/end_of_text.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/base/json_input.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

/// tokenizer_config.json writes a token as text or as an object with its content.
std::string config_token(const nlohmann::json& config, const char* key) {
  if (!config.is_object() || !config.contains(key)) return {};
  const nlohmann::json& token = config[key];
  if (token.is_string()) return token.get<std::string>();
  if (!token.is_object() || !token.contains("content")) return {};
  return token["content"].is_string() ? token["content"].get<std::string>() : "";
}

}  // namespace

std::filesystem::path tokenizer_file(const Storage& storage, const std::filesystem::path& path) {
  return storage.kind(path) == FileKind::kDirectory ? path / "tokenizer.json" : path;
}

std::string end_of_text(const Storage& storage, const std::filesystem::path& given,
                        const Tokenizer& tokenizer, const std::string& wanted) {
  if (!wanted.empty()) {
    if (tokenizer.id_of(wanted)) return wanted;
    throw ConfigError(fmt::format("--eos {}: is no token of {}", wanted, given.string()));
  }
  const std::filesystem::path config =
      tokenizer_file(storage, given).parent_path() / "tokenizer_config.json";
  if (storage.kind(config) != FileKind::kAbsent) {
    const std::string token =
        config_token(parse_json(read_text(storage, config), config.string()), "eos_token");
    if (!token.empty() && tokenizer.id_of(token)) return token;
  }
  for (const char* const token : {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"}) {
    if (tokenizer.id_of(token)) return token;
  }
  throw ConfigError(fmt::format(
      "{}: no end-of-text token is known (eos_token of tokenizer_config.json, <|endoftext|>, "
      "<|end_of_text|>, </s>, <eos>): say eos_token in tokenizer_config.json, or give `isthmus "
      "data "
      "tokenize` --eos TOKEN",
      given.string()));
}

}  // namespace isthmus
