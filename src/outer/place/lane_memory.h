// SPDX-License-Identifier: Apache-2.0
// Memory of outer.placement = "ranks" at the ranks of a site: bytes that each keeps for the outer
// state of its lanes, and temporary bytes. Arithmetic on sizes only. Not counted: the method's
// state at the first rank for any placement (means, rounds in flight), a checkpoint's copies, and
// lost contributions, which temporarily need three times the lane.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "isthmus/outer.h"
#include "outer/parts/lanes.h"

namespace isthmus::outer {

/// Sizes of a method's state, for any mesh.
struct LaneDemand {
  std::int64_t state_values = 0;        // fp32 values a parameter (outer_state_values)
  std::vector<std::int64_t> fragments;  // values of each
  std::shared_ptr<const Codec> codec;   // co-owned by copies of this
};
/// parameters need no values.
[[nodiscard]] LaneDemand lane_demand(const MethodInfo& method, const OuterOptions& options,
                                     std::span<const Parameter> parameters);

/// Number of the sampled tiles of n values that are in a lane. Pure.
[[nodiscard]] std::size_t looked_at(std::size_t n, LaneRange lane);

struct LaneMemory {
  std::int64_t values = 0;    // values of the rank's lanes
  std::int64_t kept = 0;      // bytes of their outer state
  std::int64_t encoding = 0;  // while an outer gradient is encoded: local values of the largest
                              // lane, its codes, and at the first rank those of the fragment
  std::int64_t anchors = 0;   // at the first rank, of the whole model, from an evaluation or a
                              // checkpoint's digest until the next step begins
  /// Largest temporary memory; encoding and anchors never exist together.
  [[nodiscard]] std::int64_t scratch() const { return std::max(encoding, anchors); }
  [[nodiscard]] std::int64_t most() const { return kept + scratch(); }
};
/// Memory of rank `rank` of a site with `ranks` ranks.
[[nodiscard]] LaneMemory lane_memory(const LaneDemand& demand, int ranks, int rank);

}  // namespace isthmus::outer
