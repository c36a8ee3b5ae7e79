// SPDX-License-Identifier: Apache-2.0
// What outer.placement = "ranks" takes of the ranks of a site: bytes that each keeps of the outer
// state in its lanes, and those that are there for a moment. Arithmetic on sizes; nothing runs.
// Left out: what the method holds at the first rank wherever its state is (means, what is in
// flight), a checkpoint's copies, and contributions that were lost, which take three times the
// lane for a moment.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "isthmus/outer.h"
#include "outer/parts/lanes.h"

namespace isthmus::outer {

/// Of a method, whatever the mesh.
struct LaneDemand {
  std::int64_t state_values = 0;        // fp32, a parameter (outer_state_values)
  std::vector<std::int64_t> fragments;  // values of each
  std::shared_ptr<const Codec> codec;   // co-owned by copies of this
};
/// parameters need no values.
[[nodiscard]] LaneDemand lane_demand(const MethodInfo& method, const OuterOptions& options,
                                     std::span<const Parameter> parameters);

/// Of the tiles of n values that a report looks at, how many are in a lane. Pure.
[[nodiscard]] std::size_t looked_at(std::size_t n, LaneRange lane);

struct LaneMemory {
  std::int64_t values = 0;    // of the lanes
  std::int64_t kept = 0;      // the outer state of these
  std::int64_t encoding = 0;  // while an outer gradient is encoded: local values of the largest
                              // lane, its codes, and at the first rank those of the fragment
  std::int64_t anchors = 0;   // at the first rank, of the whole model, from an evaluation or a
                              // checkpoint's digest until the next step begins
  /// What is not kept; the two are never there together.
  [[nodiscard]] std::int64_t scratch() const { return std::max(encoding, anchors); }
  [[nodiscard]] std::int64_t most() const { return kept + scratch(); }
};
/// Of rank `rank` of a site of `ranks`.
[[nodiscard]] LaneMemory lane_memory(const LaneDemand& demand, int ranks, int rank);

}  // namespace isthmus::outer
