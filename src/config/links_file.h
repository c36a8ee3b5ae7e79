// SPDX-License-Identifier: Apache-2.0
// A links file: [[link]] entries as a configuration has them, alone in a file, with a note on where
// they come from. `bench link` writes one; `simulate --links` and `plan --links` put its links in
// the place of a configuration's.
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

/// Where links come from, each a line for people; empty: not told.
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

/// Reads and checks the entries. `sites`: all that there are; empty: any names will do.
/// THROWS: ConfigErrors naming line and column, also for a site that is none of `sites` and for two
/// of them that no entry joins; SystemError when the file cannot be read.
[[nodiscard]] LinksFile read_links_file(const std::filesystem::path& file,
                                        const std::vector<std::string>& sites);
/// The same for a text; `name` stands for the file in messages.
[[nodiscard]] LinksFile read_links_text(std::string_view text, const std::filesystem::path& name,
                                        const std::vector<std::string>& sites);

/// Puts the links of `file` in the place of those of `config`, and says so in its origins.
void use_links_file(Config& config, const std::filesystem::path& file);

/// An entry, and lines about it that become comments above it.
struct NotedLink {
  LinkConfig link;
  std::vector<std::string> notes;
};
/// The text of a links file; reads back to the same links.
[[nodiscard]] std::string links_toml(const std::vector<NotedLink>& links,
                                     const LinksProvenance& measured);

}  // namespace isthmus
