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

/// Weights, and what each worker has of the inner optimizer and the outer method. What is under way
/// between sites at a checkpoint comes on top.
[[nodiscard]] std::uint64_t checkpoint_bytes(const Config& config, const TrainingPlan& plan,
                                             const ModelLayout& layout,
                                             std::optional<WorkerId> only);

[[nodiscard]] CheckpointRoom checkpoint_room(const Storage& storage, const Config& config,
                                             const TrainingPlan& plan, const ModelLayout& layout,
                                             const CheckpointPlace& place);

/// Of sites that are started on this machine, each in a folder of its own name below `out`: each
/// alone may fit where all of them do not. THROWS: SystemError naming the folder, what is free and
/// what is needed; ConfigError as make_training_plan.
void check_room_of_sites(const Storage& storage, const Config& config,
                         std::span<const WorkerId> sites, const std::filesystem::path& out,
                         bool goes_on);

}  // namespace isthmus::app
