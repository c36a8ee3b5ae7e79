// SPDX-License-Identifier: Apache-2.0
// Whether a run's disk can hold its checkpoints: worked out before the run begins, since the first
// one may come after all of the training.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "core/base/storage.h"
#include "isthmus/config.h"
#include "session/run/run_plan.h"

namespace isthmus::app {

/// Which checkpoints, where.
struct CheckpointPlace {
  std::filesystem::path out;                    // the run's folder; empty: a new one below runs/
  std::optional<WorkerId> only = std::nullopt;  // the one worker whose state is there; else all are
  bool goes_on = false;                         // the run that is there
  bool lays_down_start = false;                 // a run that begins writes one of step 0 too
};

struct CheckpointRoom {
  std::uint64_t each = 0;  // bytes of one checkpoint
  /// ckpt.keep, and one while it is written; fewer of a run that writes fewer.
  std::int64_t at_once = 0;
  bool no_more = false;     // at_once is all that the run will have
  bool fewer = false;       // a lower ckpt.keep would do with less
  std::uint64_t there = 0;  // bytes of checkpoints that are in the folder already
  std::uint64_t free = 0;   // bytes on that disk; very many where the file system does not tell
  [[nodiscard]] std::uint64_t needed() const {
    const std::uint64_t all = each * static_cast<std::uint64_t>(at_once);
    return all > there ? all - there : 0;
  }
};

/// Of a model of `values` parameters: these, and what each worker has of the inner optimizer
/// (`moments` values) and the outer method. What is under way between sites at a checkpoint comes
/// on top.
[[nodiscard]] std::uint64_t checkpoint_bytes(const Config& config, const RunPlan& plan,
                                             std::int64_t values, std::int64_t moments,
                                             std::optional<WorkerId> only);

/// `each`: bytes of one checkpoint.
[[nodiscard]] CheckpointRoom checkpoint_room(const Storage& storage, const Config& config,
                                             const RunPlan& plan, std::uint64_t each,
                                             const CheckpointPlace& place);

/// `of_caller`: the trainer is a library's caller's, which may write more than was counted.
/// THROWS: SystemError naming the folder, what is free and what is needed.
void check_checkpoint_room(const CheckpointRoom& room, const Config& config,
                           const std::filesystem::path& out, bool of_caller = false);

}  // namespace isthmus::app
