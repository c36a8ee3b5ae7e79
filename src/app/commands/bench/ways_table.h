// SPDX-License-Identifier: Apache-2.0
// The table behind net.shares = "table": for every size of vectors that a run exchanges the fastest
// way that gives the bits of its configuration.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "app/common/commands.h"
#include "config/load/ways_file.h"

namespace isthmus::app {

/// Sizes to tune for: those that are exchanged, or where there are many, the powers of two of tiles
/// up to the largest. In values, rising.
[[nodiscard]] std::vector<std::int64_t> size_classes(std::span<const std::int64_t> exchanged);

/// For each size the way that is fastest over the file's links, alone on them, in virtual time: of
/// those that are predicted fastest, and even shares unless another one saves a hundredth.
/// THROWS: ConfigError where a run of this configuration can take no table.
[[nodiscard]] WaysFile tuned_ways(const Config& config, std::span<const std::int64_t> sizes);

/// Writes that to `out`, and what it chose and what even shares would take, for people or --json.
void write_ways_table(const Config& config, std::span<const std::int64_t> exchanged,
                      const std::filesystem::path& out, Session& session);

}  // namespace isthmus::app
