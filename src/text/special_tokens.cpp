// SPDX-License-Identifier: Apache-2.0
#include "text/special_tokens.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/json_input.h"

namespace isthmus {
namespace {

/// The files write a token as text or as an object with its content.
std::string token_text(const nlohmann::json& token) {
  if (token.is_string()) return token.get<std::string>();
  if (!token.is_object() || !token.contains("content")) return {};
  return token["content"].is_string() ? token["content"].get<std::string>() : "";
}

}  // namespace

std::vector<std::pair<std::string, std::string>> special_tokens(
    const Storage& storage, const std::filesystem::path& folder) {
  std::vector<std::pair<std::string, std::string>> tokens;
  for (const char* const name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const std::filesystem::path file = folder / name;
    if (storage.kind(file) != FileKind::kFile) continue;
    const nlohmann::json config = parse_json(read_text(storage, file), file.string());
    if (!config.is_object()) continue;
    for (const auto& item : config.items()) {
      if (!item.key().ends_with("_token")) continue;
      const std::string token = token_text(item.value());
      const bool known =
          std::ranges::any_of(tokens, [&](const auto& each) { return each.first == item.key(); });
      if (!token.empty() && !known) tokens.emplace_back(item.key(), token);
    }
  }
  return tokens;
}

std::string special_token(const Storage& storage, const std::filesystem::path& folder,
                          std::string_view role) {
  for (auto& [known, token] : special_tokens(storage, folder)) {
    if (known == role) return std::move(token);
  }
  return {};
}

}  // namespace isthmus
