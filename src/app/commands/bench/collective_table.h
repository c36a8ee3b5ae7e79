// SPDX-License-Identifier: Apache-2.0
// The table behind net.shares = "table": for every vector size of a run the fastest algorithm that
// gives the bits of its configuration.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "app/common/commands.h"
#include "config/load/collective_table_file.h"

namespace isthmus::app {

/// Sizes to tune for: the exchanged ones, or, if there are many, the powers of two of tiles up to
/// the largest. In values, ascending.
[[nodiscard]] std::vector<std::int64_t> size_classes(std::span<const std::int64_t> exchanged);

/// For each size the fastest algorithm over the file's links, alone on them, in virtual time: the
/// best of those predicted fastest; even shares unless another one saves 1 %. THROWS: ConfigError
/// when a run of this configuration cannot use a table.
[[nodiscard]] CollectiveTable tuned_ways(const Config& config, std::span<const std::int64_t> sizes);

/// Writes the table to `out`, and for people or --json its choices and the times of even shares.
void write_collective_table(const Config& config, std::span<const std::int64_t> exchanged,
                            const std::filesystem::path& out, Session& session);

}  // namespace isthmus::app
