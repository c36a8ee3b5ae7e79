// SPDX-License-Identifier: Apache-2.0
// Links that commands below `plan` are asked about: by a links file, or one rate for all.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "sim/link.h"

namespace isthmus::app {

struct LinkQuestion {
  std::vector<std::string> sites;   // at least two
  std::vector<DirectedLink> links;  // sites x sites, row-major [from][to]
  std::string origin;               // "links.toml (measured ...)"
  std::string slowest;              // "east -> west, 93.2 Mbit/s, 50 ms round trip"
  bool has_traces = false;          // of which the mean rate is taken
};

/// `asked`: of the file's sites these alone; empty: all that it names.
/// THROWS: UsageError naming a site that is none of the file's and the nearest that is, fewer than
/// two sites, and a link without a rate; ConfigErrors of the file.
[[nodiscard]] LinkQuestion links_of_file(std::string_view command,
                                         const std::filesystem::path& file,
                                         const std::vector<std::string>& asked);

/// THROWS: UsageError for another word than "ideal" and "goodput".
[[nodiscard]] LinkModel link_model_of(const std::string& word);

}  // namespace isthmus::app
