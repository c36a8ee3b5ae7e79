// SPDX-License-Identifier: Apache-2.0
// All meshes of so many ranks, the ones that work in order of the step time that mesh_time
// predicts. Pure functions; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/mesh_placement.h"

namespace isthmus::plan {

/// What is fixed; the rest is chosen for each tp x pp x dp: micro-batches, schedule and virtual
/// stages by time, ZeRO and recomputation as little as fits in memory.
struct MeshSearch {
  std::int64_t ranks = 1;
  std::optional<int> tp, pp, dp, zero, virtual_stages;
  std::optional<std::int64_t> micro_batches;
  std::optional<PipelineKind> schedule;
  std::optional<Recompute> recompute;     // none, else selective, else full
  std::optional<bool> sequence_parallel;  // split where the context divides
  bool bf16 = false;
  std::string codec_state = "fp32";  // where ranks give one another what they have updated
};

struct MeshCandidate {
  MeshChoice choice;
  RankMemory memory;  // of the pipeline rank that holds most,
  int fullest = 0;    // which is this one
  MeshTime time;      // with its ranks placed so
  bool fits = true;
  std::string why;               // what sets it apart, in a few words
  MeshOrder order = kMeshOrder;  // of its ranks over the machine's slots (mesh_placement.h)
  double rank_order_s = 0;       // of a step with rank r in slot r
};

struct MeshRefusal {
  MeshChoice choice;
  std::string text;  // of mesh_problems
};

struct MeshRanking {
  std::vector<MeshCandidate> candidates;  // those that fit, fastest first; then by memory
  std::vector<MeshRefusal> refused;
  /// Fewest ranks, as a multiple of those asked for by a power of two, with which some mesh fits;
  /// 0 when some fits already, or none does up to 64 times as many.
  std::int64_t enough_ranks = 0;
  [[nodiscard]] bool fits() const { return !candidates.empty() && candidates.front().fits; }
};

[[nodiscard]] MeshRanking rank_meshes(const MeshWorkload& workload, const MeshMachine& machine,
                                      const MeshSearch& search);

/// What is awkward about a mesh that works: a vocabulary or stages that do not divide, too few
/// micro-batches, tensor parallelism over a slow link or into narrow products.
[[nodiscard]] std::vector<std::string> mesh_warnings(const MeshWorkload& workload,
                                                     const MeshMachine& machine,
                                                     const MeshCandidate& candidate);

}  // namespace isthmus::plan
