// SPDX-License-Identifier: Apache-2.0
// How the workers of a run get their trainers (isthmus/session.h). The run knows no model, no data
// and no device.
#pragma once

#include <functional>
#include <memory>

#include "core/base/events.h"
#include "isthmus/session.h"

namespace isthmus::app {

/// Makes the trainer of worker `context.rank`, on the worker's task. `events`: of the run, may be
/// null; borrowed until `train_alone`.
using MakeTrainer =
    std::function<std::unique_ptr<Trainer>(const WorkerContext& context, EventSink* events)>;

}  // namespace isthmus::app
