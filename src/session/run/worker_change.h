// SPDX-License-Identifier: Apache-2.0
// A run that continues with more or fewer workers than its checkpoint has: the state that each
// worker takes, the states that are left out, and the methods for which that is well defined.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/state/checkpoint.h"
#include "isthmus/config.h"

namespace isthmus::app {

/// For each worker of `config` the worker of the checkpoint whose state it takes; nothing: a new
/// worker. If the number of workers has changed, workers are matched by the names of their sites,
/// if the checkpoint has at least one of these names; else by number.
[[nodiscard]] std::vector<std::optional<int>> former_workers(const CheckpointInfo& info,
                                                             const Config& config);

/// THROWS: ConfigError naming both numbers of workers, the reason and the remedy, if the change of
/// workers would change the meaning of the run.
void check_workers(const Checkpoint& checkpoint, const Config& config);

/// The line about new and left-out workers, and what is lost with them; empty: no change.
[[nodiscard]] std::string workers_text(const Checkpoint& checkpoint, const Config& config);

/// The key of all workers' names in CheckpointInfo::settings.
inline constexpr const char* kWorkerNames = "sites";
[[nodiscard]] std::string worker_names(const Config& config);

}  // namespace isthmus::app
