// SPDX-License-Identifier: Apache-2.0
// A run that cannot fit into this machine is refused before it starts, not killed while it runs.
// Only what is certain counts: what a run is sure to write to, against all the memory and swap that
// there are; a run that would fit beside nothing else is let go on. Reads a few small files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "app/train/training_plan.h"
#include "inner/model/model_layout.h"
#include "isthmus/config.h"

namespace isthmus::app {

/// The most that this process can have.
struct MemoryLimit {
  std::uint64_t bytes = 0;  // 0: not known
  std::string what;         // whose limit it is, for people
};
/// The machine's memory and swap, or less where a control group (version 1 or 2) of this process or
/// above it allows less. root: "/", but in tests.
[[nodiscard]] MemoryLimit memory_limit(const std::filesystem::path& root = "/");

/// The most memory that this process has had so far; 0: not known.
[[nodiscard]] std::uint64_t peak_bytes(const std::filesystem::path& root = "/");

/// Bytes that the workers in this process are sure to write to, of one rank where its ranks are
/// processes, or 0 on devices. Left out: what lies in files, outer momenta, evaluations, and
/// scratch but that of lanes (outer/place/lane_memory.h).
struct CertainMemory {
  std::int64_t state = 0;        // weights, gradients, moments, anchors
  std::int64_t activations = 0;  // logits included
  [[nodiscard]] std::uint64_t total() const {
    return static_cast<std::uint64_t>(state + activations);
  }
};
[[nodiscard]] CertainMemory certain_memory(const Config& config, const TrainingPlan& plan,
                                           const ModelLayout& layout);

/// The same of rank `rank` of worker `worker`'s mesh, which is a process that serves the first.
[[nodiscard]] CertainMemory certain_memory_of_rank(const Config& config, const TrainingPlan& plan,
                                                   const ModelLayout& layout, WorkerId worker,
                                                   int rank);

/// sites_can_part: each may run on a machine of its own. THROWS: SystemError naming bytes needed
/// and there, and what lowers them at every site of the file, with what is then certain.
void check_memory(const Config& config, const TrainingPlan& plan, const ModelLayout& layout,
                  const MemoryLimit& limit, bool sites_can_part);

/// The same of a process that serves as rank `rank`, on its own machine. Of ranks that share a
/// machine each is checked alone.
void check_rank_memory(const Config& config, const TrainingPlan& plan, const ModelLayout& layout,
                       WorkerId worker, int rank, const MemoryLimit& limit);

}  // namespace isthmus::app
