// SPDX-License-Identifier: Apache-2.0
// A ways file: who owns how much of a mean, by how large its vectors are (net.shares = "table").
// `isthmus bench collectives CONFIG --out FILE` writes one; net.table names it.
//
//   sites = ["a", "b", "c"]
//   [[way]]
//   bytes = 266240          # of a vector as it travels
//   name = "shares by links (2:0:1)"
//   shares = [2, 0, 1]      # by site; without: all own as much
//   predicted_s = 0.41
//   played_s = 0.415
//   even_s = 0.62
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "isthmus/config.h"

namespace isthmus {

/// An entry. The times are what was expected when it was written; no run reads them.
struct NotedWay {
  WayConfig way;
  std::string name;
  double predicted_s = 0;
  double played_s = 0;
  double even_s = 0;  // played, where all own as much
};

struct WaysFile {
  std::vector<std::string> sites;
  std::vector<NotedWay> ways;  // sizes rise
};

/// THROWS: ConfigErrors naming line and column; SystemError when the file cannot be read.
[[nodiscard]] WaysFile read_ways_file(const std::filesystem::path& file);
/// The same for a text; `name` stands for the file in messages.
[[nodiscard]] WaysFile read_ways_text(std::string_view text, const std::filesystem::path& name);

/// The text of a ways file, which reads back to the same. `how`: a line about where it comes from.
[[nodiscard]] std::string ways_toml(const WaysFile& ways, const std::string& how);

/// Why a run of this configuration can have no shares but even ones, and what helps; empty: nothing
/// in these keys is in the way.
[[nodiscard]] std::pair<std::string, std::string> shares_obstacle(const Config& config,
                                                                  const MethodInfo& info);

/// 16 hexadecimal digits over what a run takes from it: sizes and shares.
[[nodiscard]] std::string ways_digest(const std::vector<WayConfig>& ways);

}  // namespace isthmus
