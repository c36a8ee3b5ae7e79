// SPDX-License-Identifier: Apache-2.0
// A run's checkpoints: every worker lays down its state, the last arrival commits all of it as one
// directory; on resume each worker picks its own up again.
//   model.safetensors     the outer parameters: what is evaluated and exported
//   worker-K.safetensors  worker K: local parameters, inner optimizer, outer method with its syncs
//   in
//                         flight
//   shared, state.json    totals of the run, step, workers, configuration digest, run id
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "app/run_log.h"
#include "core/checkpoint.h"
#include "isthmus/config.h"
#include "isthmus/inner_loop.h"
#include "isthmus/outer.h"

namespace isthmus::app {

class Checkpointing {
 public:
  struct Options {
    Storage& storage;
    std::filesystem::path folder;  // <run>/ckpt
    const Config& config;
    std::string run_id;
    std::string config_hash;
    std::vector<std::pair<std::string, std::string>> files;  // beside the model, e.g. config.json
  };
  /// Borrows what it is given. `resume`: where the run goes on from, or nothing.
  Checkpointing(Options options, std::optional<Checkpoint> resume, RunTotals& totals,
                MetricsLog& log);

  /// `ckpt.every` (wall clock) has passed since the last one. Any thread.
  [[nodiscard]] bool due_by_time() const;

  /// Local parameters of worker `rank`; before its method is made. Nothing without a resume. A
  /// worker that the checkpoint does not know takes worker 0's.
  void restore_parameters(Rank rank, InnerLoop& inner) const;
  /// Inner optimizer and outer method. With another number of workers the syncs in flight are left
  /// out: their work is still in the local parameters, so the next outer gradient carries it.
  void restore_state(Rank rank, InnerLoop& inner, OuterStrategy& strategy) const;

  /// Copies worker `rank`'s state. Workers may call at the same time; all of them before `commit`.
  void lay_down(Rank rank, const InnerLoop& inner, const OuterStrategy& strategy);
  /// Writes the checkpoint of step t. REQUIRES: all workers stand still since `lay_down`.
  /// THROWS: SystemError of the disk; earlier checkpoints are then intact.
  void commit(StepIndex t);

 private:
  [[nodiscard]] std::unique_ptr<StateReader> reader_of(Rank rank) const;

  Options options_;
  std::optional<Checkpoint> resume_;
  RunTotals& totals_;
  MetricsLog& log_;
  CheckpointStore store_;
  std::vector<StateSnapshot> states_;  // by worker
  const InnerLoop* inner_ = nullptr;   // worker 0's, while the workers stand still
  const OuterStrategy* strategy_ = nullptr;
  double last_written_;
};

}  // namespace isthmus::app
