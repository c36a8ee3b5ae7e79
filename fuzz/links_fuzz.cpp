// SPDX-License-Identifier: Apache-2.0
// Any text as a links file: either errors with places, or links that are written and read back,
// also from a configuration that uses them.
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "config/links_file.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  try {
    const isthmus::LinksFile file = isthmus::read_links_text(input, "/f/l.toml", {});
    std::vector<isthmus::NotedLink> links;
    for (const isthmus::LinkConfig& link : file.links) links.push_back({link, {}});
    const auto again =
        isthmus::read_links_text(isthmus::links_toml(links, file.measured), "/f/l.toml", {});
    require(again.links.size() == file.links.size());
    for (std::size_t i = 0; i < again.links.size(); ++i) {
      require(again.links[i].a == file.links[i].a && again.links[i].b == file.links[i].b);
      require(again.links[i].bits_per_s_up == file.links[i].bits_per_s_up);
      require(again.links[i].rtt == file.links[i].rtt);
    }
    require(again.origin == file.origin);
    // A configuration's resolved text tells the origin; with links alone it is a links file.
    isthmus::Config config;
    isthmus::replace_links(config, file.links, "--links " + file.origin);
    const auto resolved = isthmus::read_links_text(isthmus::resolved_toml(config), "/f/l.toml", {});
    require(resolved.links.size() == file.links.size());
  } catch (const isthmus::ConfigErrors& errors) {
    require(!errors.diagnostics().empty());
  }
  return 0;
}
