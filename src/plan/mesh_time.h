// SPDX-License-Identifier: Apache-2.0
// How long a step of a mesh takes on given links, and which ranks go where. Nothing runs.
//
// Assumed: all ranks compute at one rate; a collective takes its hops times the latency plus what a
// rank sends over its rate, on the slowest link among its ranks; tensor-parallel operations stand
// in the way of computing, as do messages between stages where the schedule waits for them;
// gradients are reduced while the last micro-batch's backward pass runs (ZeRO 2 and 3: each one's),
// but for those that are final only as it ends, of the embedding or the stage's first layer; ZeRO 3
// gathers parameters beside each pass: what is longer than the pass is exposed. Without it they are
// gathered after the update, in the way of all else. With ZeRO a bucket's sums go to the rank whose
// slice it is in, so its end of a link takes N - 1 buckets' bytes at a time. Where the rate of a
// rank's memory is given, what passes and the update go through beside products takes its bytes
// over that rate (mesh_passes.h). Left out: products that become too small to be fast, several
// groups on one link, sums that take cores which compute. Pure functions; any thread.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "plan/mesh_cost.h"

namespace isthmus::plan {

/// A link that every `ranks` neighbouring ranks have among them, and how fast one rank's end is.
struct LinkClass {
  std::string name;        // "node"
  std::int64_t ranks = 0;  // that it joins, a multiple of the class before; 0: all
  double bytes_per_s = 0;
  double latency_s = 0;
};

struct MeshMachine {
  double flops_per_s = 0;            // of a rank, as it really computes
  double attention_flops_per_s = 0;  // the same of attention; 0: flops_per_s
  double memory_bytes_per_s = 0;     // that a rank reads and writes; 0: takes no time
  std::int64_t memory_bytes = 0;     // of a rank; 0: not asked
  std::vector<LinkClass> links;      // innermost, fastest first; the last one joins all
};

enum class MeshDimension { kTensor, kPipeline, kData };
inline constexpr std::array<std::string_view, 3> kMeshDimensionNames = {"tensor", "pipeline",
                                                                        "data"};

/// Dimensions from the innermost, whose ranks are neighbours, outwards. The mesh of a run is
/// tensor, data, pipeline.
using MeshOrder = std::array<MeshDimension, 3>;
inline constexpr MeshOrder kMeshOrder = {MeshDimension::kTensor, MeshDimension::kData,
                                         MeshDimension::kPipeline};

/// Index of the slowest link that a group of this dimension needs (for the pipeline: between
/// neighbouring stages, the last and the first included where there are virtual ones).
[[nodiscard]] std::size_t slowest_link(const MeshChoice& choice, const MeshOrder& order,
                                       MeshDimension dimension,
                                       const std::vector<LinkClass>& links);

/// Seconds of a step. The parts add up to `step`.
struct MeshTime {
  double step = 0;
  double compute = 0;                  // of the pipeline rank that is busiest
  double tensor = 0;                   // its tensor-parallel operations
  double bubble = 0;                   // it waits for other stages and their messages
  double data = 0;                     // exposed reduction of gradients and gathering of parameters
  double update = 0;                   // the optimizer goes through its state
  double bubble_share = 0;             // of the pipeline's part of the step
  int busiest = 0;                     // that pipeline rank
  std::array<std::size_t, 3> links{};  // by MeshDimension: index into the machine's
};

/// costs: of each pipeline rank, as `rank_costs` gives them. REQUIRES: mesh_problems is empty.
[[nodiscard]] MeshTime mesh_time(const MeshChoice& choice, const std::vector<RankCost>& costs,
                                 const MeshMachine& machine, const MeshOrder& order = kMeshOrder);

/// Seconds of operations one after another on a link.
[[nodiscard]] double seconds_of(const Volume& volume, const LinkClass& link);

}  // namespace isthmus::plan
