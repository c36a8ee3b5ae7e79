// SPDX-License-Identifier: Apache-2.0
// One worker of a run: makes its trainer and method, takes its steps, evaluates its share, saves
// its state. The same code runs on real threads and in virtual time.
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
#include "session/run/local_step_coordinator.h"
#include "session/run/offline_training.h"
#include "session/run/run_plan.h"
#include "session/run/trainer.h"
#include "session/run/worker_site.h"
#include "transport/exchange/catch_up/retained_results.h"

namespace isthmus::app {

/// Objects that all workers of a run share; borrowed for the run.
struct WorkerSetup {
  const Config& config;
  const RunPlan& plan;
  const MakeTrainer& make;
  Board& board;
  Checkpointing& checkpointing;
  AnchorMean& anchor_mean;      // for evaluations
  EventSink* events = nullptr;  // may be null
  Duration patience{0};         // timeout of a round; the run ends at it
  double step_flops = 0;        // of one worker's inner step
  Duration begun{0};            // simulated: the run's clock when this session began
  Duration measured_step{0};    // virtual length of a step if nothing else declares one
  /// Receives the digest of a worker's outer state at its start or join, if workers are separate
  /// processes, so that they can be compared; and a digest of each tensor, if a trainer's start is
  /// its own (run_start.h). May be empty.
  std::function<void(StepIndex, const Digest128&, const std::string& tensors)> tell_outer = {};
  /// The store of this worker's retained results, for healing. May be null.
  RetainedResults* retained = nullptr;
  WorkerSite* site = nullptr;  // this worker's site, if it is a separate process
  /// Data were appended since the checkpoint that the run continues from.
  std::optional<DataGrowth> growth = std::nullopt;
  /// The work that this worker had not contributed when it lost the others, and its offline
  /// training: written at the loss, used when it joins again. May be null.
  PendingDelta* pending_delta = nullptr;
  /// Receives the outcome of that work. May be empty if in_hand is null.
  std::function<void(StepIndex, const RejoinReport&)> on_own_work = {};
};

/// Runs worker `context.rank` to the last step, or to the step agreed after a signal.
/// THROWS: RunError when the run has diverged, PeerError when a round fails, ConfigError and
/// SystemError as the parts do.
void run_worker(const WorkerSetup& setup, WorkerContext& context);

}  // namespace isthmus::app
