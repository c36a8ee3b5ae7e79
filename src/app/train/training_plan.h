// SPDX-License-Identifier: Apache-2.0
// The numbers of a configuration for the language model: samples, meshes, threads. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "app/train/device_choice.h"
#include "inner/mesh/mesh.h"
#include "inner/mesh/rank_processes.h"
#include "isthmus/config.h"
#include "session/run/run_plan.h"

namespace isthmus::app {

/// The ranks inside one site.
struct SiteMesh {
  MeshShape shape;
  std::int64_t micro_batches = 1;  // of one data-parallel rank's samples
};

/// The same for the language model.
struct TrainingPlan : RunPlan {
  std::int64_t samples = 0;         // B: sequences of all workers in one inner step
  std::int64_t worker_samples = 0;  // B / M
  std::vector<SiteMesh> meshes;     // of each worker
  /// The processes that are the ranks of this process's worker, this one first; borrowed. Null:
  /// ranks are threads.
  RankProcesses* processes = nullptr;
  int threads_per_worker = 1;
  std::vector<int> cores;    // of this process's threads, worker after worker; empty: any
  DeviceChoice device = {};  // of the workers' inner loops
  bool json = false;         // --json: errors are printed on stdout too

  [[nodiscard]] const SiteMesh& mesh(WorkerId rank) const {
    return meshes[static_cast<std::size_t>(rank.value())];
  }
  [[nodiscard]] std::int64_t tokens_per_step(std::int64_t context) const {
    return samples * context;
  }
};

/// Cores of worker `rank`'s threads; empty: any.
[[nodiscard]] std::vector<int> cores_of(const TrainingPlan& plan, WorkerId rank);

/// `cores`: those that this process may use. `only`: the one worker of this process; else all.
/// THROWS: ConfigError naming the key that cannot be satisfied.
[[nodiscard]] TrainingPlan make_training_plan(const Config& config, std::span<const int> cores,
                                              std::optional<WorkerId> only = std::nullopt);

}  // namespace isthmus::app
