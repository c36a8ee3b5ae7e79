// SPDX-License-Identifier: Apache-2.0
#include "isthmus/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "config/check/config_check.h"
#include "config/load/config_load_defaults.h"
#include "config/load/config_load_draft.h"
#include "config/load/config_load_origins.h"
#include "config/load/config_load_reader.h"
#include "config/load/config_load_text.h"
#include "config/schema/config_schema_values.h"

namespace isthmus {
namespace {

constexpr std::string_view kWildcards = "*?[";

/// Absolute path or pattern. Before a pattern the folder's own wildcard characters are escaped:
/// only the user's part is a pattern.
std::string located_path(const Config& config, const std::string& path) {
  if (path.find_first_of(kWildcards) == std::string::npos) {
    return std::filesystem::absolute(config.locate(path)).lexically_normal().string();
  }
  std::string folder;
  for (const char c : std::filesystem::absolute(config.file).parent_path().string()) {
    folder += kWildcards.find(c) == std::string_view::npos ? "" : "\\";
    folder += c;
  }
  return (std::filesystem::path(folder) / path).lexically_normal().string();
}

/// A source of data with absolute paths.
std::string located(const Config& config, const std::string& source) {
  for (const std::string_view kind : {"text:", "tokens:"}) {
    if (!source.starts_with(kind)) continue;
    const std::string name = source.substr(kind.size());
    constexpr std::string_view kTokenizer = ":tokenizer=";
    const std::size_t at = kind == "text:" ? name.rfind(kTokenizer) : std::string::npos;
    if (at == std::string::npos) return fmt::format("{}{}", kind, located_path(config, name));
    return fmt::format("{}{}{}{}", kind, located_path(config, name.substr(0, at)), kTokenizer,
                       located_path(config, name.substr(at + kTokenizer.size())));
  }
  return source;
}

}  // namespace

bool LogConfig::has(std::string_view sink) const {
  return std::find(sinks.begin(), sinks.end(), sink) != sinks.end();
}

std::filesystem::path Config::locate(const std::filesystem::path& path) const {
  return path.is_absolute() ? path : file.parent_path() / path;
}

std::string Config::located_source() const { return located(*this, data.source); }

NamedTexts Config::located_sources() const {
  NamedTexts located_ones = data.sources;
  for (auto& [name, source] : located_ones) source = located(*this, source);
  return located_ones;
}

Config load_config(const std::filesystem::path& file, const Overrides& overrides,
                   const SchemaContext& context) {
  return load_config_text(config::read_config_file(file), file, overrides, context);
}

Config load_config_text(std::string_view text, const std::filesystem::path& name,
                        const Overrides& overrides, const SchemaContext& context) {
  config::Draft draft(text, name, context);
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    draft.diagnostics.add("E-EMPTY", {}, "the file is empty",
                          "`isthmus init` writes a commented one");
  } else if (config::Reader(draft).read(text, overrides)) {
    config::complete(draft);
    config::validate(draft);
  }
  if (!draft.diagnostics.empty()) {
    throw ConfigErrors(draft.diagnostics.take());
  }
  config::note_origins(draft);
  return std::move(draft.config);
}

LinkConfig parse_link(std::string_view text) {
  constexpr std::string_view kForm = "RATE,RTT[,LOSS], for example 100Mbit/s,80ms";
  LinkConfig link;
  link.a = link.b = "*";
  const std::string_view names[] = {"link.rate", "link.rtt", "link.loss"};
  std::size_t part = 0;
  std::string_view rest = text;
  while (true) {
    const std::size_t comma = rest.find(',');
    if (part >= std::size(names)) {
      throw ConfigError(fmt::format("link '{}': too many parts; write {}", text, kForm));
    }
    for (const auto& row : config::link_rows()) {
      if (row.name != names[part]) {
        continue;
      }
      config::SourceValue source;
      source.data = std::string(rest.substr(0, comma));
      const auto value = config::parse_value(source, {row.name, row.type, row.range, row.choices});
      if (!value) {
        throw ConfigError(fmt::format("link '{}': {}{}; write {}", text, value.error().message,
                                      value.error().hint.empty() ? "" : ": " + value.error().hint,
                                      kForm));
      }
      row.field.set(link, *value);
    }
    ++part;
    if (comma == std::string_view::npos) {
      break;
    }
    rest = rest.substr(comma + 1);
  }
  if (part < 2) {
    throw ConfigError(fmt::format("link '{}': the round trip is missing; write {}", text, kForm));
  }
  return link;
}

}  // namespace isthmus
