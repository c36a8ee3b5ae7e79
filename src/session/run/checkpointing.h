// SPDX-License-Identifier: Apache-2.0
// A run's checkpoints: every worker lays down a copy of its state and goes on; the last one to come
// writes them all as one directory. So a checkpoint is no barrier, and none is seen on a simulated
// clock. On resume each worker picks its own state up again.
//   model.safetensors     the outer parameters: what is evaluated and exported
//   worker-K.safetensors  worker K: local parameters, inner optimizer, and the outer method with
//                         its syncs in flight
//   ../method.log         the method's own log up to the newest checkpoint, where it keeps one
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
    /// Called before each try. THROWS: when the folder is not this process's any more.
    std::function<void()> held = {};
    const DiskPatience* patience = nullptr;  // for a disk that is full; null: there is none
    std::filesystem::path folder;            // <run>/ckpt
    const Config& config;
    std::string run_id;
    std::string config_hash;
    std::vector<DataFile> data;
    /// Kept with the settings that last (trainer_facts.h), as (key, value).
    std::vector<std::pair<std::string, std::string>> trainer = {};
    bool writes = true;  // false: the workers' agreement is checked, nothing is written
    std::optional<WorkerId> only =
        std::nullopt;  // the one worker of this process; else all are here
    /// Whether every site of the run lays one down after the step; where `only` is given.
    std::function<bool(StepIndex)> of_all_sites = {};
    /// Called before one is written; blocks until the lines up to its step are. May be empty.
    std::function<void(StepIndex)> await_lines = {};
    std::vector<std::pair<std::string, std::string>> files;  // beside the model, e.g. config.json
  };
  /// Borrows storage, config, totals, log. `resume`: where the run goes on from, or nothing.
  Checkpointing(Options options, std::optional<Checkpoint> resume, RunTotals& totals,
                MetricsLog& log);

  /// True once each time that `ckpt.every` (wall clock) has passed. One thread.
  [[nodiscard]] bool due_by_time();

  /// Whether the run goes on from a checkpoint.
  [[nodiscard]] bool resumes() const { return resume_.has_value(); }

  /// Local parameters of worker `rank`; before its method is made. Nothing without a resume. A
  /// worker that the checkpoint does not know takes worker 0's (session/run/worker_change.h).
  void restore_parameters(WorkerId rank, InnerLoop& inner) const;
  /// Inner optimizer and outer method. With another number of workers the syncs in flight are left
  /// out: their work is still in the local parameters, so the next outer gradient carries it; of a
  /// method that starts each round from its anchor (delayed, eager, co2) that round would be lost,
  /// and check_workers refuses it. A worker that the checkpoint does not know begins with the
  /// anchors: the other one's open window is not its own.
  void restore_state(WorkerId rank, InnerLoop& inner, OuterStrategy& strategy) const;

  /// State of worker `rank` as the checkpoint after step t has it, which this has written or the
  /// run goes on from. THROWS: SystemError when it is not there, or not as it was written.
  [[nodiscard]] std::unique_ptr<StateReader> written(WorkerId rank, StepIndex t) const;

  /// Copies worker `rank`'s state after step t; the last of the workers then writes the checkpoint,
  /// before its next step, so the totals are those of step t. That one's parameters are written
  /// from where they are, so a single worker needs no memory for a copy. Any worker's thread.
  /// THROWS: SystemError of the disk, earlier checkpoints being intact; RunError when the workers'
  /// outer parameters are not the same bits.
  void lay_down(WorkerId rank, StepIndex t, InnerLoop& inner, const OuterStrategy& strategy);

 private:
  /// Outer values of one tensor: in worker 0's state where they are its local ones too.
  struct ModelValues {
    std::string name;
    StateArray owned;  // empty where they lie elsewhere
    std::span<const float> values;
  };
  /// Copies of the workers' states after one step, until the last has come.
  struct Pending {
    std::vector<StateSnapshot> states;  // by worker
    std::vector<Digest128>
        anchors;  // of what workers share, by worker; none where each has its own, or all are apart
    std::vector<std::vector<std::int64_t>> shapes;
    std::vector<std::byte> method_log;  // worker 0's
    std::vector<ModelValues> model;     // the outer parameters
    int laid_down = 0;
  };
  /// True when worker `rank` alone has not laid down its state after step t.
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

/// The identity of a run's data as `Checkpointing` keeps it, or nothing in a checkpoint without it.
[[nodiscard]] std::vector<DataFile> data_of(const Checkpoint& checkpoint);

}  // namespace isthmus::app
