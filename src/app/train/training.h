// SPDX-License-Identifier: Apache-2.0
// A whole run: from a configuration to a run directory with metrics, checkpoints and a summary.
// `train` runs it on real threads, `simulate` in virtual time; the parameters are the same bit for
// bit.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/common/commands.h"
#include "app/train/fault_cost.h"
#include "data/dataset.h"
#include "inner/mesh/rank_processes.h"
#include "isthmus/config.h"
#include "isthmus/errors.h"
#include "plan/prediction.h"
#include "record/round_times.h"
#include "record/run_log.h"
#include "session/run/offline_training.h"
#include "session/run_session.h"
#include "session/site/site_session.h"

namespace isthmus::app {

/// A run's data, opened and hashed.
struct OpenData {
  Dataset data;
  std::vector<DataFile> fingerprint;
};

/// A run that a command makes at the same time as others. Signals, progress and the kernels'
/// instruction set then belong to the command; a signal still stops the run.
struct SideBySide {
  const OpenData* data = nullptr;  // of its configuration, shared; null: the run opens its own
  int slots = 0;            // simulated: compute regions whose real work runs at once; 0: all cores
  bool checkpoint = false;  // write one at the end
  bool events = false;      // write events.jsonl
  std::function<void(std::int64_t step)> on_step;  // after each step of all workers; may be empty
};

struct TrainingRequest {
  std::string command;  // "train", "simulate", "demo": for the manifest
  std::filesystem::path out;
  /// never | auto (the newest checkpoint of `out`, if any) | PATH of a checkpoint or run. A PATH
  /// within `out` continues the run there; any other PATH starts a new run from that state.
  std::string resume = "never";
  bool force = false;
  bool simulated = false;
  bool emulated = false;               // `simulate --emulate`
  std::optional<SiteArguments> site;   // this process is one site; the others are elsewhere
  SiteRecording* recording = nullptr;  // of that site's frames; borrowed, may be null
  /// The processes of this site's mesh, this one first (app/train/mesh_job.h); borrowed, may be
  /// null.
  RankProcesses* mesh = nullptr;
  std::string lane;                          // demo: name of this run in the status block, or empty
  std::vector<LaneProgress> finished_lanes;  // demo: the runs before this one
  std::optional<SideBySide> side_by_side;
  /// The work that this site's worker keeps while it is cut off; borrowed, may be null.
  PendingDelta* pending_delta = nullptr;
  /// Holds the run's folder across the sessions of a site that rejoins; borrowed, may be null.
  std::optional<RunLock>* lock = nullptr;
  std::string lock_remedy;  // a further remedy for a folder in use; may be empty
  RunChanges changes = {};  // of a resumed run (--change)
};

struct TrainingOutcome : RunOutcome {
  std::int64_t parameters = 0;
  bool simulated = false;
  /// Runs over declared links: the closed form's prediction.
  std::optional<Prediction> prediction;
  std::string links_absent;  // why the run was not over those links; empty: it was
  RoundComparison rounds;    // single rounds of it, with measured ones; may be empty
  std::string rounds_at;     // the worker of these rounds
  /// Simulated runs with [[fault]]: their cost.
  std::optional<FaultCost> faults;
};

/// Blocks until the run's end, or until a checkpoint after a signal. Prints progress and notes on
/// session.err. THROWS: errors of the parts, after writing the manifest's status and the "end"
/// line; CutOffError for a site in a separate process.
[[nodiscard]] TrainingOutcome run_training(const Config& config, const TrainingRequest& request,
                                           Session& session);

/// Makes all checks that run_training makes before it writes. THROWS: ConfigError, SystemError.
void check_training(const Config& config, const TrainingRequest& request, Session& session);

}  // namespace isthmus::app
