// SPDX-License-Identifier: Apache-2.0
#include "config/links_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "config/check/config_check.h"
#include "config/load/config_load_files.h"
#include "config/load/config_load_reader.h"
#include "config/load/config_load_text.h"
#include "config/schema/config_schema_values.h"
#include "core/base/suggest.h"

namespace isthmus {
namespace {

using config::Draft;
using config::SourceEntry;
using config::SourceTable;

std::string* field_of(LinksProvenance& measured, std::string_view key) {
  return key == "at"    ? &measured.at
         : key == "by"  ? &measured.by
         : key == "how" ? &measured.how
                        : nullptr;
}

void read_measured(const SourceEntry& entry, LinksProvenance& measured,
                   config::Diagnostics& diagnostics) {
  const auto* table = std::get_if<SourceTable>(&entry.value.data);
  if (table == nullptr) {
    diagnostics.add("E-TYPE", entry.place, "'measured' must be a section", "write [measured]");
    return;
  }
  for (const SourceEntry& each : *table) {
    std::string* field = field_of(measured, each.key);
    const auto* text = std::get_if<std::string>(&each.value.data);
    if (field == nullptr) {
      diagnostics.add("E-KEY-UNKNOWN", each.place,
                      fmt::format("unknown key 'measured.{}'", each.key),
                      "keys of [measured]: at, by, how");
    } else if (text == nullptr) {
      diagnostics.add("E-TYPE", each.value.place,
                      fmt::format("'measured.{}' must be text, not {}", each.key,
                                  config::type_name(each.value)));
    } else {
      *field = *text;
    }
  }
}

bool joins(const LinkConfig& link, const std::string& one, const std::string& other) {
  const auto means = [](const std::string& pattern, const std::string& site) {
    return pattern == "*" || pattern == site;
  };
  return (means(link.a, one) && means(link.b, other)) ||
         (means(link.a, other) && means(link.b, one));
}

/// "'east' and 'west'" of each pair that no entry joins, a few of them.
std::string missing_pairs(const std::vector<LinkConfig>& links,
                          const std::vector<std::string>& sites) {
  constexpr std::size_t kFew = 4;
  std::vector<std::string> missing;
  for (std::size_t i = 0; i < sites.size(); ++i) {
    for (std::size_t j = i + 1; j < sites.size(); ++j) {
      if (std::ranges::none_of(
              links, [&](const LinkConfig& link) { return joins(link, sites[i], sites[j]); })) {
        missing.push_back(fmt::format("'{}' and '{}'", sites[i], sites[j]));
      }
    }
  }
  const std::size_t all = missing.size();
  missing.resize(std::min(all, kFew));
  return join(missing) + (all > kFew ? fmt::format(" and {} more pairs", all - kFew) : "");
}

std::vector<std::string> names_in(const std::vector<LinkConfig>& links) {
  std::vector<std::string> names;
  for (const LinkConfig& link : links) {
    for (const std::string& name : {link.a, link.b}) {
      if (name != "*" && !name.empty() && std::ranges::find(names, name) == names.end()) {
        names.push_back(name);
      }
    }
  }
  return names;
}

}  // namespace

LinksFile read_links_text(std::string_view text, const std::filesystem::path& name,
                          const std::vector<std::string>& sites) {
  const SchemaContext no_context;
  Draft draft(text, name, no_context);
  LinksFile file;
  SourceTable entries;
  for (const SourceEntry& entry :
       config::parse_source(text, draft.diagnostics).value_or(SourceTable{})) {
    if (entry.key == "link") {
      entries.push_back(entry);
    } else if (entry.key == "measured") {
      read_measured(entry, file.measured, draft.diagnostics);
    } else {
      draft.diagnostics.add("E-KEY-UNKNOWN", entry.place,
                            fmt::format("'{}' in a links file", entry.key),
                            "it holds [[link]] entries and [measured]; a run's configuration is "
                            "given on its own");
    }
  }
  config::Reader reader(draft);
  reader.read_table(entries);
  reader.explain_unknown_keys();
  if (draft.config.links.empty() && draft.diagnostics.empty()) {
    draft.diagnostics.add("E-KEY-MISSING", {}, "no [[link]] in this links file",
                          "`isthmus bench link` writes them");
  }
  config::CheckContext check(draft);
  config::validate_links(draft.config.links, sites.empty() ? names_in(draft.config.links) : sites,
                         check);
  config::read_link_traces(draft);
  if (draft.diagnostics.empty()) {
    if (const std::string missing = missing_pairs(draft.config.links, sites); !missing.empty()) {
      draft.diagnostics.add(
          "E-KEY-MISSING", {}, fmt::format("no [[link]] joins {}", missing),
          "measure with all sites (isthmus bench link), or add the entry by hand");
    }
  }
  if (!draft.diagnostics.empty()) {
    throw ConfigErrors(draft.diagnostics.take());
  }
  file.links = std::move(draft.config.links);
  file.origin = name.string();
  if (!file.measured.at.empty()) {
    file.origin += fmt::format(" (measured {}{})", file.measured.at,
                               file.measured.by.empty() ? "" : " by " + file.measured.by);
  }
  file.origin = config::toml_comment(file.origin);  // where it is to stand
  return file;
}

LinksFile read_links_file(const std::filesystem::path& file,
                          const std::vector<std::string>& sites) {
  return read_links_text(config::read_config_file(file), file, sites);
}

void use_links_file(Config& config, const std::filesystem::path& file) {
  std::vector<std::string> sites;
  for (const SiteConfig& site : config.sites) sites.push_back(site.name);
  LinksFile links = read_links_file(file, sites);
  replace_links(config, std::move(links.links), "--links " + links.origin);
}

std::string links_toml(const std::vector<NotedLink>& links, const LinksProvenance& measured) {
  std::string text =
      "# Links between sites. Use them with `isthmus simulate FILE --links THIS`, `isthmus plan\n"
      "# utilisation FILE --links THIS` or, at all sites alike, `isthmus train FILE --links "
      "THIS`,\n"
      "# or copy the entries into FILE.\n[measured]\n";
  for (const auto& [key, value] : {std::pair("at", &measured.at), std::pair("by", &measured.by),
                                   std::pair("how", &measured.how)}) {
    if (!value->empty()) text += fmt::format("{} = {}\n", key, config::toml_quote(*value));
  }
  for (const NotedLink& each : links) {
    text += "\n";
    for (const std::string& note : each.notes) {
      text += fmt::format("# {}\n", config::toml_comment(note));
    }
    text += "[[link]]\n";
    for (const auto& row : config::link_rows()) {
      const std::string value = config::toml_text(row.field.get(each.link), row.type);
      const bool told = row.name != "link.loss" || each.link.loss > 0;
      if (!value.empty() && told) {
        text += fmt::format("{} = {}\n", row.name.substr(row.name.find('.') + 1), value);
      }
    }
  }
  return text;
}

}  // namespace isthmus
