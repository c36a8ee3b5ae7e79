// SPDX-License-Identifier: Apache-2.0
#include "inner/hf/hub_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "isthmus/errors.h"

namespace isthmus {
namespace {

constexpr std::size_t kLongestName = 96;

bool is_part(const std::string& text) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  };
  return !text.empty() && text.size() <= kLongestName && text.front() != '.' &&
         text.back() != '.' && std::ranges::all_of(text, allowed);
}

std::string trimmed(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) {
    text.pop_back();
  }
  return text;
}

}  // namespace

std::filesystem::path hub_cache(const EnvironmentLookup& look) {
  constexpr std::array<std::pair<const char*, const char*>, 5> kPlaces = {{
      {"HF_HUB_CACHE", ""},
      {"HUGGINGFACE_HUB_CACHE", ""},  // before 2023
      {"HF_HOME", "hub"},
      {"XDG_CACHE_HOME", "huggingface/hub"},
      {"HOME", ".cache/huggingface/hub"},
  }};
  for (const auto& [variable, below] : kPlaces) {
    const std::optional<std::string> value = look(variable);
    if (!value || value->empty()) continue;
    const std::filesystem::path folder = *value;
    return *below == '\0' ? folder : folder / below;
  }
  return {};
}

bool is_hub_name(const std::string& name) {
  const std::size_t slash = name.find('/');
  if (slash == std::string::npos) return is_part(name);
  return is_part(name.substr(0, slash)) && is_part(name.substr(slash + 1));
}

std::filesystem::path hub_model(const Storage& storage, const std::filesystem::path& cache,
                                const std::string& name) {
  std::string folder_name = "models--" + name;
  if (const std::size_t slash = folder_name.find('/'); slash != std::string::npos) {
    folder_name.replace(slash, 1, "--");
  }
  const std::filesystem::path model = cache / folder_name;
  const auto missing = [&](const std::string& what) {
    return SystemError(
        fmt::format("{}; download it once: huggingface-cli download {}", what, name));
  };
  if (cache.empty() || storage.kind(model) == FileKind::kAbsent) {
    throw missing(fmt::format(
        "no folder of this name, and no model of this name in {}",
        cache.empty() ? "the hub's cache (HF_HOME and HOME are not set)" : cache.string()));
  }
  const std::filesystem::path main = model / "refs" / "main";
  if (storage.kind(main) == FileKind::kAbsent) {
    throw missing(fmt::format("{} has no version \"main\"", model.string()));
  }
  const std::filesystem::path snapshot = model / "snapshots" / trimmed(read_text(storage, main));
  if (storage.kind(snapshot / "config.json") == FileKind::kAbsent) {
    throw missing(
        fmt::format("{} lacks config.json: it was downloaded in part", snapshot.string()));
  }
  return snapshot;
}

}  // namespace isthmus
