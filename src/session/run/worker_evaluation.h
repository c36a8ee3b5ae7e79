// SPDX-License-Identifier: Apache-2.0
// A worker's part in an evaluation.
#pragma once

#include "isthmus/inner_loop.h"
#include "isthmus/outer.h"
#include "session/run/trainer.h"
#include "session/run/worker.h"

namespace isthmus::app {

/// Takes this worker's share of the evaluation after step t, and posts it; after the last step also
/// what is missing of the others'. Outer parameters that are the same on all workers are evaluated
/// by all that are there, each taking every M-th part; the mean of unlike ones by the worker who
/// has it. Between two steps. THROWS: as Board::await_eval.
void evaluate_share(const WorkerSetup& setup, WorkerContext& context, Trainer& trainer,
                    InnerLoop& inner, const OuterStrategy& strategy, StepIndex t);

}  // namespace isthmus::app
