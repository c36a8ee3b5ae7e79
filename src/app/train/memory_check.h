// SPDX-License-Identifier: Apache-2.0
// Refuses a run that cannot fit into this machine's memory before it starts, instead of it being
// killed later. Only certain needs count: memory that the run is sure to write, against all
// existing memory and swap; a run that would fit on an otherwise idle machine is accepted. Reads a
// few small files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "app/train/training_plan.h"
#include "inner/model/model_layout.h"
#include "isthmus/config.h"

namespace isthmus::app {

/// The memory limit of this process.
struct MemoryLimit {
  std::uint64_t bytes = 0;  // 0: unknown
  std::string what;         // the source of the limit, for people
};
/// The machine's memory and swap, or a lower limit of a control group (version 1 or 2) of this
/// process or above it. root: "/", except in tests.
[[nodiscard]] MemoryLimit memory_limit(const std::filesystem::path& root = "/");

/// This process's peak memory so far; 0: unknown.
[[nodiscard]] std::uint64_t peak_bytes(const std::filesystem::path& root = "/");
/// Bytes of this process now that are no pages of files: those do not depend on what else the
/// machine does. 0 if unknown.
[[nodiscard]] std::uint64_t anonymous_bytes(const std::filesystem::path& root = "/");

/// Bytes that the workers in this process are sure to write; of one rank if its ranks are
/// processes; 0 on devices. Without state in files, outer momenta, evaluations, and scratch other
/// than that of lanes (outer/place/lane_memory.h).
struct CertainMemory {
  std::int64_t state = 0;        // weights, gradients, moments, anchors
  std::int64_t activations = 0;  // with logits
  [[nodiscard]] std::uint64_t total() const {
    return static_cast<std::uint64_t>(state + activations);
  }
};
[[nodiscard]] CertainMemory certain_memory(const Config& config, const TrainingPlan& plan,
                                           const ModelLayout& layout);

/// The same for rank `rank` of worker `worker`'s mesh, a process that serves the first one.
[[nodiscard]] CertainMemory certain_memory_of_rank(const Config& config, const TrainingPlan& plan,
                                                   const ModelLayout& layout, WorkerId worker,
                                                   int rank);

/// sites_can_part: each may run on a separate machine. THROWS: SystemError naming needed and
/// available bytes, the settings of the file that lower the need at every site, and the need after
/// that.
void check_memory(const Config& config, const TrainingPlan& plan, const ModelLayout& layout,
                  const MemoryLimit& limit, bool sites_can_part);

/// The same for a process that serves as rank `rank`, on its own machine. Ranks that share a
/// machine are checked separately.
void check_rank_memory(const Config& config, const TrainingPlan& plan, const ModelLayout& layout,
                       WorkerId worker, int rank, const MemoryLimit& limit);

}  // namespace isthmus::app
