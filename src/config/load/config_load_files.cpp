// SPDX-License-Identifier: Apache-2.0
#include "config/load/config_load_files.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>

#include "config/load/link_trace.h"
#include "isthmus/errors.h"

namespace isthmus::config {

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
