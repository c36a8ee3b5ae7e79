// SPDX-License-Identifier: Apache-2.0
// train.offload of a run: refused settings, disk space, and a worker's files.
// core/state/state_memory.h tells which state is in files and how it is paged.
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

/// The most bytes in files of this process's workers at a time, including copies for checkpoints.
/// only: the one worker of this process; else all.
[[nodiscard]] std::uint64_t offload_bytes(const Config& config, const TrainingPlan& plan,
                                          const ModelLayout& layout, std::optional<WorkerId> only);

/// Memory of the same workers for the state that is not in files: activations and the current
/// buffers of a pass.
[[nodiscard]] std::uint64_t memory_beside_offload(const Config& config, const TrainingPlan& plan,
                                                  const ModelLayout& layout,
                                                  std::optional<WorkerId> only);

/// Does nothing if train.offload is not set. THROWS: ConfigError for a method that it does not
/// support; SystemError when the folder's disk has too little room, or this process may not open
/// enough files: its limit is raised as far as possible.
void check_offload(const Config& config, const TrainingPlan& plan, const ModelLayout& layout,
                   std::optional<WorkerId> only);

/// The files of worker `rank`; null if train.offload is not set. Borrows events and clock, which
/// may be null. THROWS: SystemError when the folder cannot be created.
[[nodiscard]] std::unique_ptr<StateMemory> make_state_memory(const Config& config, WorkerId rank,
                                                             EventSink* events, const Clock* clock);

}  // namespace isthmus::app
