// SPDX-License-Identifier: Apache-2.0
// A ways file: the owners' shares of a mean by the size of its vectors (net.shares = "table").
// `isthmus bench collectives CONFIG --out FILE` writes one; net.table names it.
//
//   sites = ["a", "b", "c"]
//   [[way]]
//   bytes = 266240          # of an encoded vector
//   name = "shares by links (2:0:1)"
//   shares = [2, 0, 1]      # by site; absent: even shares
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

/// An entry. The times are those expected when it was written; no run reads them.
struct NotedWay {
  WayConfig way;
  std::string name;
  double predicted_s = 0;
  double played_s = 0;
  double even_s = 0;  // simulated, with even shares
};

struct CollectiveTable {
  std::vector<std::string> sites;
  std::vector<NotedWay> ways;  // in ascending order of size
};

/// THROWS: ConfigErrors naming line and column; SystemError when the file cannot be read.
[[nodiscard]] CollectiveTable read_ways_file(const std::filesystem::path& file);
/// The same for a text; `name` stands for the file in messages.
[[nodiscard]] CollectiveTable read_ways_text(std::string_view text,
                                             const std::filesystem::path& name);

/// The text of a ways file, which reads back to the same. `how`: a line about its origin.
[[nodiscard]] std::string ways_toml(const CollectiveTable& ways, const std::string& how);

/// Why a run of this configuration can only have even shares, and the remedy; empty: these keys
/// allow others.
[[nodiscard]] std::pair<std::string, std::string> shares_obstacle(const Config& config,
                                                                  const MethodInfo& info);

/// Digest in 16 hexadecimal digits of the values that a run uses: sizes and shares.
[[nodiscard]] std::string ways_digest(const std::vector<WayConfig>& ways);

}  // namespace isthmus
