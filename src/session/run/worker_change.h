// SPDX-License-Identifier: Apache-2.0
// A run that goes on with more or fewer workers than its checkpoint has: whose state each worker
// takes, what is left out, and with which methods that is well defined.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/state/checkpoint.h"
#include "isthmus/config.h"

namespace isthmus::app {

/// Of each worker of `config` the worker of the checkpoint whose state it goes on from; nothing: it
/// is new. Where their number is another one, workers are known by the names of their sites, if
/// the checkpoint has some of them; else by their numbers.
[[nodiscard]] std::vector<std::optional<int>> former_workers(const CheckpointInfo& info,
                                                             const Config& config);

/// THROWS: ConfigError naming both numbers of workers, the reason and the way out, where the run
/// would mean something else with those of `config`.
void check_workers(const Checkpoint& checkpoint, const Config& config);

/// The line for workers that are new or left out, and what goes with them; empty: as many as ever.
[[nodiscard]] std::string workers_text(const Checkpoint& checkpoint, const Config& config);

/// The names of all workers, as checkpoints keep them among CheckpointInfo::settings.
inline constexpr const char* kWorkerNames = "sites";
[[nodiscard]] std::string worker_names(const Config& config);

}  // namespace isthmus::app
