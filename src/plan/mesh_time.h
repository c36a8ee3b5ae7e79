// SPDX-License-Identifier: Apache-2.0
// The step time of a mesh on given links, and the placement of its ranks. Runs nothing.
//
// Assumptions. All ranks compute at one rate. A collective takes its hops times the latency plus a
// rank's sent bytes over the rate, on the slowest link among its ranks. Tensor-parallel operations
// delay computing, as do messages between stages for which the schedule waits. Gradients are
// reduced during the last micro-batch's backward pass (ZeRO 2 and 3: each one's), except those of
// the embedding or the stage's first layer, which are final only at its end. ZeRO 3 gathers
// parameters during each pass: only the time beyond the pass is exposed. Otherwise parameters are
// gathered after the update, exposed. With ZeRO a bucket's sums go to the rank that owns the slice,
// so its link end receives N - 1 buckets' bytes at a time. If the rate of a rank's memory is given,
// passes and update take their traffic other than products (mesh_passes.h) over that rate. Omitted:
// inefficiency of small products, several groups on one link, cores used by sums. Pure functions;
// any thread.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "plan/mesh_cost.h"

namespace isthmus::plan {

/// A link shared by every `ranks` neighbouring ranks, and the rate of one rank's end.
struct LinkClass {
  std::string name;        // "node"
  std::int64_t ranks = 0;  // number of connected ranks, a multiple of the class before; 0: all
  double bytes_per_s = 0;
  double latency_s = 0;
};

struct MeshMachine {
  double flops_per_s = 0;            // of a rank, as achieved
  double attention_flops_per_s = 0;  // the same for attention; 0: flops_per_s
  double memory_bytes_per_s = 0;     // read and written by a rank; 0: memory takes no time
  std::int64_t memory_bytes = 0;     // of a rank; 0: not checked
  std::vector<LinkClass> links;      // innermost, fastest first; the last one connects all
};

enum class MeshDimension { kTensor, kPipeline, kData };
inline constexpr std::array<std::string_view, 3> kMeshDimensionNames = {"tensor", "pipeline",
                                                                        "data"};

/// Dimensions from the innermost, whose ranks are neighbours, outwards. A run's mesh has the order
/// tensor, data, pipeline.
using MeshOrder = std::array<MeshDimension, 3>;
inline constexpr MeshOrder kMeshOrder = {MeshDimension::kTensor, MeshDimension::kData,
                                         MeshDimension::kPipeline};

/// Index of the slowest link that a group of this dimension uses (for the pipeline: between
/// neighbouring stages, and between the last and the first if there are virtual stages).
[[nodiscard]] std::size_t slowest_link(const MeshChoice& choice, const MeshOrder& order,
                                       MeshDimension dimension,
                                       const std::vector<LinkClass>& links);

/// Seconds of a step. The parts add up to `step`.
struct MeshTime {
  double step = 0;
  double compute = 0;                  // of the busiest pipeline rank
  double tensor = 0;                   // its tensor-parallel operations
  double bubble = 0;                   // its waits for other stages and their messages
  double data = 0;                     // exposed reduction of gradients and gathering of parameters
  double update = 0;                   // the optimizer's traversal of its state
  double bubble_share = 0;             // of the pipeline's part of the step
  int busiest = 0;                     // the busiest pipeline rank
  std::array<std::size_t, 3> links{};  // by MeshDimension: index into the machine's
};

/// costs: of each pipeline rank, as `rank_costs` gives them. REQUIRES: mesh_problems is empty.
[[nodiscard]] MeshTime mesh_time(const MeshChoice& choice, const std::vector<RankCost>& costs,
                                 const MeshMachine& machine, const MeshOrder& order = kMeshOrder);

/// Seconds of sequential operations on a link.
[[nodiscard]] double seconds_of(const Volume& volume, const LinkClass& link);

}  // namespace isthmus::plan
