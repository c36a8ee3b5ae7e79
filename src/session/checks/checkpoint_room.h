// SPDX-License-Identifier: Apache-2.0
// Checks that a run's disk can hold its checkpoints, before the run begins, since the first one may
// be written only after all of the training.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "core/base/storage.h"
#include "isthmus/config.h"
#include "session/run/run_plan.h"

namespace isthmus::app {

/// The checkpoints of a run, and their place.
struct CheckpointPlace {
  std::filesystem::path out;                    // the run's folder; empty: a new one below runs/
  std::optional<WorkerId> only = std::nullopt;  // the one worker with its state here; else all
  bool goes_on = false;                         // continues the run in `out`
  bool lays_down_start = false;                 // a new run also writes a checkpoint of step 0
};

struct CheckpointRoom {
  std::uint64_t each = 0;  // bytes of one checkpoint
  /// ckpt.keep, plus one that is being written; fewer if the run writes fewer.
  std::int64_t at_once = 0;
  bool no_more = false;     // at_once is the run's total
  bool fewer = false;       // a lower ckpt.keep would need less
  std::uint64_t there = 0;  // bytes of checkpoints already in the folder
  std::uint64_t free = 0;   // free bytes on that disk; huge if the file system does not tell
  [[nodiscard]] std::uint64_t needed() const {
    const std::uint64_t all = each * static_cast<std::uint64_t>(at_once);
    return all > there ? all - there : 0;
  }
};

/// Bytes of one checkpoint of a model with `values` parameters: the parameters, and each worker's
/// inner optimizer (`moments` values) and outer method. Syncs in flight at a checkpoint come on
/// top.
[[nodiscard]] std::uint64_t checkpoint_bytes(const Config& config, const RunPlan& plan,
                                             std::int64_t values, std::int64_t moments,
                                             std::optional<WorkerId> only);

/// `each`: bytes of one checkpoint.
[[nodiscard]] CheckpointRoom checkpoint_room(const Storage& storage, const Config& config,
                                             const RunPlan& plan, std::uint64_t each,
                                             const CheckpointPlace& place);

/// `of_caller`: the trainer belongs to a library's caller and may write more than was counted.
/// THROWS: SystemError naming the folder, the free bytes and the needed bytes.
void check_checkpoint_room(const CheckpointRoom& room, const Config& config,
                           const std::filesystem::path& out, bool of_caller = false);

}  // namespace isthmus::app
