// SPDX-License-Identifier: Apache-2.0
// What a configuration means in numbers: steps, samples, threads, when to evaluate. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "app/device_choice.h"
#include "app/timed_inner_loop.h"
#include "inner/mesh.h"
#include "inner/rank_processes.h"
#include "isthmus/config.h"

namespace isthmus::app {

/// The ranks inside one site.
struct SiteMesh {
  MeshShape shape;
  std::int64_t micro_batches = 1;  // of one data-parallel rank's samples
};

struct TrainingPlan {
  std::int64_t total_steps = 0;
  int workers = 1;
  std::int64_t samples = 0;         // B: sequences of all workers in one inner step
  std::int64_t worker_samples = 0;  // B / M
  std::vector<SiteMesh> meshes;     // of each worker
  /// The processes that are the ranks of this process's worker, this one the first; borrowed. Null:
  /// ranks are threads.
  RankProcesses* processes = nullptr;
  int threads_per_worker = 1;
  int first_worker = 0;         // of those in this process
  std::vector<int> cores;       // of the threads of this process, worker after worker; empty: any
  std::int64_t eval_every = 0;  // 0: at the last step only
  std::int64_t checkpoint_every = 0;  // steps; 0: by time and at the end only
  int workers_in_process = 1;         // from first_worker on
  DeviceChoice device = {};           // what computes their inner loops
  bool json = false;                  // --json: errors are told on stdout too

  [[nodiscard]] const SiteMesh& mesh(Rank rank) const {
    return meshes[static_cast<std::size_t>(rank.value())];
  }
  [[nodiscard]] std::int64_t tokens_per_step(std::int64_t context) const {
    return samples * context;
  }
  /// Those in this process.
  [[nodiscard]] std::vector<Rank> workers_here() const;
  /// Evaluation is due after this step.
  [[nodiscard]] bool evaluates_after(StepIndex t) const {
    return t.value() == total_steps || (eval_every > 0 && t.value() % eval_every == 0);
  }
};

/// Cores of worker `rank`'s threads; empty: any.
[[nodiscard]] std::vector<int> cores_of(const TrainingPlan& plan, Rank rank);

/// `cores`: what this process may run on. `only`: the one worker that runs in it; else all do.
/// THROWS: ConfigError naming the key that cannot be met.
[[nodiscard]] TrainingPlan make_training_plan(const Config& config, std::span<const int> cores,
                                              std::optional<Rank> only = std::nullopt);

/// A word on a codec of few bits a value that brings nothing back of what it loses; empty
/// where there is nothing to say.
[[nodiscard]] std::string codec_warning(const Config& config);

/// Virtual duration of worker `rank`'s steps: the surrogate's step time, or `step_flops` at the
/// site's declared speed, or `measured`; times 1 + jitter * u with u uniform in [-1, 1], a function
/// of (seed, step, rank) alone.
[[nodiscard]] StepClock make_step_clock(const Config& config, Rank rank, double step_flops,
                                        Duration measured);

}  // namespace isthmus::app
