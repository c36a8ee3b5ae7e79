// SPDX-License-Identifier: Apache-2.0
// A worker's share of an evaluation.
#pragma once

#include "isthmus/inner_loop.h"
#include "isthmus/outer.h"
#include "session/run/trainer.h"
#include "session/run/worker.h"

namespace isthmus::app {

/// Evaluates this worker's share after step t, and posts it. With shared outer parameters each of
/// the M present workers evaluates every M-th part; with separate anchors the worker that gets
/// their mean evaluates all parts. After the last step this worker also evaluates parts that no
/// worker has posted, if the board returns any. Call between two steps. THROWS: as
/// Board::await_eval.
void evaluate_share(const WorkerSetup& setup, WorkerContext& context, Trainer& trainer,
                    InnerLoop& inner, const OuterStrategy& strategy, StepIndex t);

}  // namespace isthmus::app
