// SPDX-License-Identifier: Apache-2.0
// One worker of a run: makes its trainer and method, takes its steps, evaluates its share, lays
// down its state. The same code runs on real threads and in virtual time.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "core/base/events.h"
#include "core/base/hash.h"
#include "isthmus/config.h"
#include "isthmus/transport.h"
#include "session/run/anchor_mean.h"
#include "session/run/checkpointing.h"
#include "session/run/lone_training.h"
#include "session/run/run_board.h"
#include "session/run/run_plan.h"
#include "session/run/trainer.h"
#include "session/run/worker_site.h"
#include "transport/exchange/catch_up/retained_results.h"

namespace isthmus::app {

/// What all workers of a run share; everything is borrowed for the run.
struct WorkerSetup {
  const Config& config;
  const RunPlan& plan;
  const MakeTrainer& make;
  Board& board;
  Checkpointing& checkpointing;
  AnchorMean& anchor_mean;      // for evaluations
  EventSink* events = nullptr;  // may be null
  Duration patience{0};         // a round not committed by then ends the run
  double step_flops = 0;        // of one worker's inner step
  Duration begun{0};            // simulated: the run's clock when this session began
  Duration measured_step{0};    // virtual length of a step where nothing else declares one
  /// Told the digest of a worker's outer state where it starts or joins, when workers are processes
  /// of their own and nobody else can compare them; and of each tensor, where a trainer's start is
  /// its own (run_start.h). May be empty.
  std::function<void(StepIndex, const Digest128&, const std::string& tensors)> tell_outer = {};
  /// Where this worker's results are retained, if they are, so that it can be healed. May be null.
  RetainedResults* retained = nullptr;
  WorkerSite* site = nullptr;  // whose worker this is, where it is a process of its own
  /// Since the checkpoint that the run goes on from the data have been appended to.
  std::optional<DataGrowth> growth = std::nullopt;
  /// What this worker had given to nobody when it lost the others, and what trains on with it:
  /// written then, the work taken up when it joins again. May be null.
  InHand* in_hand = nullptr;
  /// Told what became of it. May be empty where in_hand is null.
  std::function<void(StepIndex, const BroughtBack&)> on_own_work = {};
};

/// Runs worker `context.rank` to the last step, or to the step agreed after a signal.
/// THROWS: RunError when the run has diverged, PeerError when a round fails, ConfigError and
/// SystemError as the parts do.
void run_worker(const WorkerSetup& setup, WorkerContext& context);

}  // namespace isthmus::app
