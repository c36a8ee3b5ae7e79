// SPDX-License-Identifier: Apache-2.0
// The configuration written out as TOML: every value in effect with its origin.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "config/schema/config_schema.h"
#include "config/schema/config_schema_values.h"
#include "config/schema/device_request.h"

namespace isthmus {
namespace config {
namespace {

constexpr std::size_t kCommentColumn = 44;

void write_line(std::string& text, std::string_view key, const std::string& value,
                std::string_view origin) {
  std::string line = fmt::format("{} = {}", key, value);
  line.resize(std::max(line.size() + 2, kCommentColumn), ' ');
  text += fmt::format("{}# {}\n", line, toml_comment(origin));
}

/// Value of a row as it is written; relative paths become absolute.
std::string written(const Config& config, const KeyRow<Config>& row) {
  if (row.name == "data.source") {
    if (config.data.source.empty()) return "";
    return toml_quote(config.located_source());
  }
  if (row.name == "data.sources") {
    return config.data.sources.empty() ? "" : toml_text(config.located_sources(), row.type);
  }
  if (row.name == "train.global_batch" && config.train.global_batch_tokens == 0) return "";
  if (row.name == "model.init" && !config.model.init.empty()) {
    return toml_quote(std::filesystem::absolute(config.locate(config.model.init)).string());
  }
  if (row.name == "train.offload" && !config.train.offload.empty()) {
    return toml_quote(std::filesystem::absolute(config.locate(config.train.offload)).string());
  }
  if (row.name == "parallel.communicators" && !config.rank_communicators.empty() &&
      !names_device_sums(config)) {
    return toml_quote(std::filesystem::absolute(config.locate(config.rank_communicators)).string());
  }
  const Value value = row.field.get(config);
  const auto* text = std::get_if<std::string>(&value);
  return text != nullptr && text->empty() ? "" : toml_text(value, row.type);
}

/// Keys whose default differs from every value that can be given: patience in a simulation, the
/// requested part of a small validation part, the timeout of ranks that are threads, the keys that
/// `isthmus plan mesh` is free to choose, and the time for which a site trains alone, which other
/// keys may forbid.
bool default_depends_on_the_run(std::string_view name) {
  constexpr std::array<std::string_view, 6> kDepend = {
      "net.patience",      "eval.tokens",        "parallel.zero", "parallel.sequence_parallel",
      "parallel.patience", "net.max_solo_rounds"};
  return std::ranges::find(kDepend, name) != kDepend.end();
}

/// "default", or "default: " and why it is that: no place in a file looks like it.
bool is_default(const Origin& origin) {
  return origin.text == "default" || origin.text.starts_with("default: ");
}

template <typename Target>
void write_elements(std::string& text, std::string_view section,
                    std::span<const KeyRow<Target>> rows, const std::vector<Target>& elements,
                    const std::map<std::string, Origin>& origins) {
  for (std::size_t i = 0; i < elements.size(); ++i) {
    text += fmt::format("\n[[{}]]\n", section);
    for (const auto& row : rows) {
      const std::string value = toml_text(row.field.get(elements[i]), row.type);
      const std::string key(row.name.substr(section.size() + 1));
      const auto origin = origins.find(fmt::format("{}[{}].{}", section, i, key));
      if (!value.empty() && origin != origins.end()) {
        write_line(text, key, value, origin->second.text);
      }
    }
  }
}

}  // namespace
}  // namespace config

void replace_links(Config& config, std::vector<LinkConfig> links, const std::string& origin) {
  std::erase_if(config.origins, [](const auto& entry) { return entry.first.starts_with("link["); });
  config.links = std::move(links);
  for (std::size_t i = 0; i < config.links.size(); ++i) {
    for (const auto& row : config::link_rows()) {
      if (!std::holds_alternative<std::monostate>(row.field.get(config.links[i]))) {
        const std::string key(row.name.substr(row.name.find('.') + 1));
        config.origins[fmt::format("link[{}].{}", i, key)] = {origin};
      }
    }
  }
}

std::string resolved_toml(const Config& config) {
  std::string text;
  std::string section;
  for (const auto& row : config::config_rows()) {
    const auto origin = config.origins.find(std::string(row.name));
    const std::string value = config::written(config, row);
    if (origin == config.origins.end() || value.empty() ||
        (config::is_default(origin->second) && config::default_depends_on_the_run(row.name))) {
      continue;
    }
    const std::size_t dot = row.name.find('.');
    if (dot != std::string_view::npos && row.name.substr(0, dot) != section) {
      section = row.name.substr(0, dot);
      text += fmt::format("\n[{}]\n", section);
    }
    config::write_line(text, row.name.substr(dot == std::string_view::npos ? 0 : dot + 1), value,
                       origin->second.text);
  }
  const bool sites_from_file = config.origins.contains("site[0].name");
  if (sites_from_file) {
    config::write_elements(text, "site", config::site_rows(), config.sites, config.origins);
  }
  config::write_elements(text, "link", config::link_rows(), config.links, config.origins);
  config::write_elements(text, "fault", config::fault_rows(), config.faults, config.origins);
  return text;
}

}  // namespace isthmus
