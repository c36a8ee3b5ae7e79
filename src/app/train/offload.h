// SPDX-License-Identifier: Apache-2.0
// train.offload of a run: what is refused, room on the disk, the files of a worker. What lies in
// files and how it is paged is core/state/state_memory.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "app/train/training_plan.h"
#include "core/base/events.h"
#include "core/state/state_memory.h"
#include "inner/model/model_layout.h"
#include "isthmus/config.h"

namespace isthmus::app {

/// Most bytes of files of the workers in this process at a time, copies for checkpoints included.
/// only: the one worker that runs in it; else all do.
[[nodiscard]] std::uint64_t offload_bytes(const Config& config, const TrainingPlan& plan,
                                          const ModelLayout& layout, std::optional<WorkerId> only);

/// Memory of the same workers while the rest lies in files: activations and what a pass
/// has before it.
[[nodiscard]] std::uint64_t memory_beside_offload(const Config& config, const TrainingPlan& plan,
                                                  const ModelLayout& layout,
                                                  std::optional<WorkerId> only);

/// Nothing where train.offload is not set. THROWS: ConfigError for a method that it does nothing
/// for; SystemError when the folder's disk has too little room, or this process may not open as
/// many files: its limit is raised as far as it may be.
void check_offload(const Config& config, const TrainingPlan& plan, const ModelLayout& layout,
                   std::optional<WorkerId> only);

/// The files of worker `rank`; null where train.offload is not set. Borrows events and clock, which
/// may be null. THROWS: SystemError when the folder cannot be made.
[[nodiscard]] std::unique_ptr<StateMemory> make_state_memory(const Config& config, WorkerId rank,
                                                             EventSink* events, const Clock* clock);

}  // namespace isthmus::app
