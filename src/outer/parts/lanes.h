// SPDX-License-Identifier: Apache-2.0
// Tiles of a vector, and the sharding of a fragment over the ranks of a site: each rank's shard,
// its lane, is a contiguous range of tiles. Borders are tile borders, so the lanes' codes
// concatenated are the whole fragment's. Pure functions.
#pragma once

#include <algorithm>
#include <cstddef>

#include "isthmus/codec.h"

namespace isthmus::outer {

/// Number of tiles of n values; the last one may be short.
[[nodiscard]] inline std::size_t tiles_of(std::size_t n) {
  return (n + kTileValues - 1) / kTileValues;
}

/// A contiguous range of a fragment's values.
struct LaneRange {
  std::size_t begin = 0, end = 0;
  [[nodiscard]] std::size_t size() const { return end - begin; }
  [[nodiscard]] std::size_t first_tile() const { return begin / kTileValues; }
  bool operator==(const LaneRange&) const = default;
};

/// Intersection of two ranges; possibly empty, at an unspecified place.
[[nodiscard]] inline LaneRange common(LaneRange a, LaneRange b) {
  const std::size_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

/// Lane of rank `rank` in n values sharded over `ranks`. Empty if there are fewer tiles than ranks.
[[nodiscard]] inline LaneRange lane_of(std::size_t n, int ranks, int rank) {
  const auto border = [&](int r) {
    const auto share = static_cast<std::size_t>(r);
    return std::min(n, tiles_of(n) * share / static_cast<std::size_t>(ranks) * kTileValues);
  };
  return {border(rank), border(rank + 1)};
}

}  // namespace isthmus::outer
