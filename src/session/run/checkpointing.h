// SPDX-License-Identifier: Apache-2.0
// A run's checkpoints: every worker leaves a copy of its state and continues; the last worker
// writes them all as one directory. So a checkpoint is no barrier, and costs no time on a simulated
// clock. On resume each worker restores its own state.
//   model.safetensors     the outer parameters: what is evaluated and exported
//   worker-K.safetensors  worker K: local parameters, inner optimizer, and the outer method with
//                         its syncs in flight
//   ../method.log         the method's own log up to the newest checkpoint, if it keeps one
//   shared.safetensors,   totals of the run, the data's identity; step, workers, configuration
//   state.json            digest, run id
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/data_file.h"
#include "core/base/disk_patience.h"
#include "core/base/hash.h"
#include "core/state/checkpoint.h"
#include "isthmus/config.h"
#include "isthmus/inner_loop.h"
#include "isthmus/outer.h"
#include "record/run_log.h"
#include "session/run/anchor_mean.h"

namespace isthmus::app {

class Checkpointing {
 public:
  struct Options {
    Storage& storage;
    /// Called before each try to write. THROWS: when the folder no longer belongs to this process.
    std::function<void()> held = {};
    const DiskPatience* patience = nullptr;  // retries when the disk is full; null: none
    std::filesystem::path folder;            // <run>/ckpt
    const Config& config;
    std::string run_id;
    std::string config_hash;
    std::vector<DataFile> data;
    /// Kept with the lasting settings (trainer_facts.h), as (key, value).
    std::vector<std::pair<std::string, std::string>> trainer = {};
    bool writes = true;  // false: the workers' agreement is checked, nothing is written
    std::optional<WorkerId> only =
        std::nullopt;  // the one worker in this process; else all are here
    /// Whether every site of the run saves a checkpoint after the step; set if `only` is.
    std::function<bool(StepIndex)> of_all_sites = {};
    /// Called before each write; blocks until the lines up to that step are written. May be empty.
    std::function<void(StepIndex)> await_lines = {};
    std::vector<std::pair<std::string, std::string>> files;  // beside the model, e.g. config.json
  };
  /// Borrows storage, config, totals, log. `resume`: the checkpoint to continue from, or nothing.
  Checkpointing(Options options, std::optional<Checkpoint> resume, RunTotals& totals,
                MetricsLog& log);

  /// True once each time that `ckpt.every` (wall clock) has passed. One thread.
  [[nodiscard]] bool due_by_time();

  /// Whether the run continues from a checkpoint.
  [[nodiscard]] bool resumes() const { return resume_.has_value(); }

  /// Restores local parameters of worker `rank`; call before its method is made. Does nothing
  /// without a resume. A worker that is not in the checkpoint takes worker 0's
  /// (session/run/worker_change.h). THROWS: RunError when the checkpoint does not fit the model,
  /// SystemError when it cannot be read; restore_state too.
  void restore_parameters(WorkerId rank, InnerLoop& inner) const;
  /// Restores inner optimizer and outer method. With another number of workers the syncs in flight
  /// are dropped: their steps are still in the local parameters, so the next outer gradient
  /// includes them. Methods that start each round from the anchor (delayed, eager, co2) would lose
  /// that round, so check_workers refuses them. A worker that is not in the checkpoint begins with
  /// the anchors, since worker 0's open window is not its own.
  void restore_state(WorkerId rank, InnerLoop& inner, OuterStrategy& strategy) const;

  /// The state of worker `rank` in the checkpoint after step t, which this object has written or
  /// the run continues from. THROWS: SystemError when it is missing or damaged.
  [[nodiscard]] std::unique_ptr<StateReader> written(WorkerId rank, StepIndex t) const;

  /// Copies worker `rank`'s state after step t and returns; the last worker writes the checkpoint,
  /// before its next step, so the totals are those of step t, and blocks on the disk. The last
  /// worker's parameters are written without a copy, so a single worker needs no memory for one.
  /// Any worker's thread. THROWS: SystemError of the disk, earlier checkpoints stay intact;
  /// RunError when the workers' outer parameters differ in a bit.
  void lay_down(WorkerId rank, StepIndex t, InnerLoop& inner, const OuterStrategy& strategy);

 private:
  /// Outer values of one tensor; they lie in worker 0's state if its local values are the same.
  struct ModelValues {
    std::string name;
    StateArray owned;  // empty if they lie elsewhere
    std::span<const float> values;
  };
  /// Copies of the workers' states after one step, until the last worker has called.
  struct Pending {
    std::vector<StateSnapshot> states;  // by worker
    std::vector<Digest128> anchors;     // digest of shared outer values, by worker; empty if each
                                        // worker has its own, or is its own process
    std::vector<std::vector<std::int64_t>> shapes;
    std::vector<std::byte> method_log;  // worker 0's
    std::vector<ModelValues> model;     // the outer parameters
    int laid_down = 0;
  };
  /// True when worker `rank` is the only one that has not saved its state after step t.
  [[nodiscard]] bool is_last(StepIndex t);
  [[nodiscard]] int workers_here() const { return options_.only ? 1 : options_.config.workers(); }
  void check_agreement(StepIndex t, const Pending& pending) const;
  void write(StepIndex t, const Pending& pending);
  void save(const CheckpointContents& contents, const Pending& pending);
  [[nodiscard]] std::unique_ptr<StateReader> reader_of(WorkerId rank) const;
  [[nodiscard]] std::optional<int> former(WorkerId rank) const;

  Options options_;
  std::optional<Checkpoint> resume_;
  std::vector<std::optional<int>> former_;  // of resume_: former_workers
  RunTotals& totals_;
  MetricsLog& log_;
  CheckpointStore store_;
  double last_due_s_;
  AnchorMean anchor_mean_;
  std::mutex mutex_;
  std::map<std::int64_t, Pending> pending_;  // by step; guarded by mutex_
};

/// The identity of a run's data in a checkpoint of `Checkpointing`; empty if the checkpoint has
/// none.
[[nodiscard]] std::vector<DataFile> data_of(const Checkpoint& checkpoint);

}  // namespace isthmus::app
