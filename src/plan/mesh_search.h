// SPDX-License-Identifier: Apache-2.0
// All meshes of a number of ranks; the valid ones in order of the step time that mesh_time
// predicts. Pure functions; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/mesh_placement.h"

namespace isthmus::plan {

/// The fixed settings. The rest is chosen for each tp x pp x dp: micro-batches, schedule and
/// virtual stages by time; as little ZeRO and recomputation as memory allows.
struct MeshSearch {
  std::int64_t ranks = 1;
  std::optional<int> tp, pp, dp, zero, virtual_stages;
  std::optional<std::int64_t> micro_batches;
  std::optional<PipelineKind> schedule;
  std::optional<Recompute> recompute;     // default: none, else selective, else full
  std::optional<bool> sequence_parallel;  // default: split if the context divides
  bool bf16 = false;
  std::string codec_state = "fp32";  // of updated values that ranks exchange
};

struct MeshCandidate {
  MeshChoice choice;
  RankMemory memory;  // of the pipeline rank with the most memory,
  int fullest = 0;    // which is this one
  MeshTime time;      // with the ranks in `order`
  bool fits = true;
  std::string why;               // its distinguishing property, in a few words
  MeshOrder order = kMeshOrder;  // of its ranks over the machine's slots (mesh_placement.h)
  double rank_order_s = 0;       // of a step with rank r in slot r
};

struct MeshRefusal {
  MeshChoice choice;
  std::string text;  // of mesh_problems
};

struct MeshRanking {
  std::vector<MeshCandidate> candidates;  // fitting ones first, by time; then by memory
  std::vector<MeshRefusal> refused;
  /// Fewest ranks, `ranks` times a power of two, with which a mesh fits; 0 if one fits already, or
  /// none does up to 64 times as many.
  std::int64_t enough_ranks = 0;
  [[nodiscard]] bool fits() const { return !candidates.empty() && candidates.front().fits; }
};

[[nodiscard]] MeshRanking rank_meshes(const MeshWorkload& workload, const MeshMachine& machine,
                                      const MeshSearch& search);

/// Disadvantages of a valid mesh: a vocabulary or stages that do not divide, too few micro-batches,
/// tensor parallelism over a slow link or into narrow products.
[[nodiscard]] std::vector<std::string> mesh_warnings(const MeshWorkload& workload,
                                                     const MeshMachine& machine,
                                                     const MeshCandidate& candidate);

}  // namespace isthmus::plan
