// SPDX-License-Identifier: Apache-2.0
// [[link]] trace: the file is read while loading, so that what is wrong with it is told with
// everything else, and what needs one rate finds one.
#include <fmt/format.h>

#include <cmath>

#include "core/config_loader.h"
#include "core/link_trace.h"

namespace isthmus::config {

void Loader::take_link_traces() {
  for (std::size_t i = 0; i < config.links.size(); ++i) {
    LinkConfig& link = config.links[i];
    const auto given_trace = link_keys[i].find("link.trace");
    if (given_trace == link_keys[i].end()) continue;
    const Place& where = given_trace->second.value;
    if (link.trace.empty()) {
      diagnostics.add("E-VALUE", where, "'link.trace' names no file",
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
      diagnostics.add("E-VALUE", where, fmt::format("'link.trace': {}", error.what()));
    }
  }
}

}  // namespace isthmus::config
