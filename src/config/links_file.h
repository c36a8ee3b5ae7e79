// SPDX-License-Identifier: Apache-2.0
// A links file: [[link]] entries as in a configuration, with a note on their origin. `bench link`
// writes one; `simulate --links` and `plan --links` use its links in place of a configuration's.
//
//   [measured]
//   at = "2026-11-22T12:30:00Z"
//   by = "isthmus 0.1.0 (a1b2c3d)"
//   how = "..."
//   [[link]]
//   between = ["east", "west"]
//   rate = "93.2Mbit/s"
//   rtt = "50.1ms"
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "isthmus/config.h"

namespace isthmus {

/// The origin of links, a line for people in each field; empty: unknown.
struct LinksProvenance {
  std::string at;
  std::string by;
  std::string how;
};

struct LinksFile {
  std::vector<LinkConfig> links;
  LinksProvenance measured;
  /// "links.toml (measured 2026-11-22T12:30:00Z by isthmus 0.1.0)"
  std::string origin;
};

/// Reads and checks the entries. `sites`: all sites; empty: any names. THROWS: ConfigErrors naming
/// line and column, also for an unknown site and for two sites without an entry; SystemError when
/// the file cannot be read.
[[nodiscard]] LinksFile read_links_file(const std::filesystem::path& file,
                                        const std::vector<std::string>& sites);
/// The same for a text; `name` stands for the file in messages. THROWS: ConfigErrors likewise.
[[nodiscard]] LinksFile read_links_text(std::string_view text, const std::filesystem::path& name,
                                        const std::vector<std::string>& sites);

/// Replaces the links of `config` by those of `file`, and records that in its origins. THROWS: as
/// read_links_file.
void use_links_file(Config& config, const std::filesystem::path& file);

/// An entry, and lines that become comments above it.
struct NotedLink {
  LinkConfig link;
  std::vector<std::string> notes;
};
/// The text of a links file; reads back to the same links.
[[nodiscard]] std::string links_toml(const std::vector<NotedLink>& links,
                                     const LinksProvenance& measured);

}  // namespace isthmus
