// SPDX-License-Identifier: Apache-2.0
#include "config/load/config_load_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "config/load/collective_table_file.h"
#include "config/load/link_trace.h"
#include "isthmus/errors.h"

namespace isthmus::config {

void read_shares_table(Draft& draft) {
  Config& config = draft.config;
  std::filesystem::path& table = config.net.table;
  if (!table.empty()) {
    table = std::filesystem::absolute(config.locate(table)).lexically_normal();
  }
  if (config.net.shares != "table") return;
  if (table.empty()) {
    draft.refuse(
        "E-KEY-MISSING", "net.shares", "net.shares = \"table\" without net.table",
        "table = \"ways.toml\", as `isthmus bench collectives CONFIG --out ways.toml` writes it");
    return;
  }
  constexpr const char* kWrites = "`isthmus bench collectives CONFIG --out FILE` writes one";
  std::error_code unreadable;
  if (!std::filesystem::exists(table, unreadable)) {
    draft.refuse("E-VALUE", "net.table",
                 fmt::format("'net.table': {}: no such file", table.string()), kWrites);
    return;
  }
  CollectiveTable file;
  try {
    file = read_ways_file(table);
  } catch (const ConfigErrors& errors) {
    draft.refuse("E-VALUE", "net.table", fmt::format("'net.table': {}", errors.summary()));
    return;
  } catch (const Error& error) {
    draft.refuse("E-VALUE", "net.table", fmt::format("'net.table': {}", error.what()), kWrites);
    return;
  }
  std::vector<std::string> names;
  for (const SiteConfig& site : config.sites) names.push_back(site.name);
  if (file.sites != names) {
    draft.refuse("E-CONFLICT", "net.table",
                 fmt::format("'net.table': {} is for sites {}, and this file has {}",
                             table.string(), fmt::join(file.sites, ", "), fmt::join(names, ", ")),
                 "write one for them: isthmus bench collectives CONFIG --out FILE");
    return;
  }
  for (NotedWay& noted : file.ways) config.net.ways.push_back(std::move(noted.way));
}

void read_link_traces(Draft& draft) {
  Config& config = draft.config;
  for (std::size_t i = 0; i < config.links.size(); ++i) {
    LinkConfig& link = config.links[i];
    const auto given_trace = draft.links.keys[i].find("link.trace");
    if (given_trace == draft.links.keys[i].end()) continue;
    const Place& where = given_trace->second.value;
    if (link.trace.empty()) {
      draft.diagnostics.add("E-VALUE", where, "'link.trace' names no file",
                            "trace = \"links/day.csv\", relative to this file");
      continue;
    }
    link.trace = std::filesystem::absolute(config.locate(link.trace)).lexically_normal();
    try {
      const LinkTrace trace = read_link_trace(link.trace);
      // Whole, as rates of links are.
      link.bits_per_s_up = std::round(trace.mean_up());
      link.bits_per_s_down = std::round(trace.mean_down());
    } catch (const Error& error) {
      draft.diagnostics.add("E-VALUE", where, fmt::format("'link.trace': {}", error.what()));
    }
  }
}

}  // namespace isthmus::config
