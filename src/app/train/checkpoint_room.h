// SPDX-License-Identifier: Apache-2.0
// Whether the disk can hold the checkpoints of the built-in trainer's runs
// (session/checks/checkpoint_room.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>

#include "app/train/training_plan.h"
#include "core/base/storage.h"
#include "inner/model/model_layout.h"
#include "isthmus/config.h"
#include "session/checks/checkpoint_room.h"

namespace isthmus::app {

/// Bytes of the weights, and of each worker's inner optimizer and outer method. Syncs in flight at
/// a checkpoint come on top.
[[nodiscard]] std::uint64_t checkpoint_bytes(const Config& config, const TrainingPlan& plan,
                                             const ModelLayout& layout,
                                             std::optional<WorkerId> only);

[[nodiscard]] CheckpointRoom checkpoint_room(const Storage& storage, const Config& config,
                                             const TrainingPlan& plan, const ModelLayout& layout,
                                             const CheckpointPlace& place);

/// For sites started on this machine, each in a folder with its name below `out`: each alone may
/// fit when all together do not. THROWS: SystemError naming the folder, the free bytes and the
/// needed bytes; ConfigError as make_training_plan.
void check_room_of_sites(const Storage& storage, const Config& config,
                         std::span<const WorkerId> sites, const std::filesystem::path& out,
                         bool goes_on);

}  // namespace isthmus::app
