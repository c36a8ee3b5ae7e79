// SPDX-License-Identifier: Apache-2.0
// Runs the cells of a comparison on the cores of this machine, several at a time, in this process;
// each is a training run as made by `simulate` (with links) or `train`. So a kill ends all of them
// at once, and leaves no process that writes into a folder of the next start.
//
// At most as many threads compute as there are cores: a simulated cell uses one core, and more only
// when fewer cells are left than cores; a cell on real threads uses one a worker.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>

#include "app/common/commands.h"
#include "app/compare/cell_inputs.h"
#include "app/compare/cell_program.h"
#include "app/compare/cell_store.h"
#include "app/compare/comparison_plan.h"
#include "record/run_lock.h"

namespace isthmus::app {

struct RunnerOptions {
  std::filesystem::path folder;  // of the comparison
  const RunLock& lock;           // of that folder
  int cores = 1;
  int jobs = 1;              // cells at a time
  bool checkpoints = false;  // keep each run's last one
  CellProgram program = {};  // trains the cells; none: the built-in trainer
};

struct RunnerOutcome {
  std::size_t run = 0;     // cells run now
  std::size_t reused = 0;  // found in the store
  bool stopped = false;    // by a signal, before the last cell
};

/// Blocks until every cell of `plan` is finished, or after a signal the running ones have stopped.
/// Each finished cell is in `store` before it counts. A diverged run is a result; any other failure
/// ends the comparison once the running cells have ended. A program that replaces the trainer is a
/// child process a cell. THROWS: that failure.
[[nodiscard]] RunnerOutcome run_cells(ComparisonPlan& plan, CellStore& store,
                                      const Experiment& experiment, CellInputs& inputs,
                                      const RunnerOptions& options, Session& session);

/// The number of cells at a time, and the resource that bounds it.
struct JobLimit {
  int jobs = 1;
  std::string reason;
};
/// `widest`: threads of the largest cell; `memory_bytes`: of the largest cell; `asked`: --jobs, 0
/// for as many as fit.
[[nodiscard]] JobLimit job_limit(int cores, int widest, std::uint64_t memory_bytes,
                                 std::uint64_t available_bytes, int asked);

/// The share of the cores for one of `together` concurrent cells.
struct CellThreads {
  int threads = 1;  // of the whole cell (train.threads)
  int slots = 1;    // simulated: compute regions at once
};
[[nodiscard]] CellThreads cell_threads(int cores, std::size_t together, int workers);

}  // namespace isthmus::app
