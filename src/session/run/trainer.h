// SPDX-License-Identifier: Apache-2.0
// Creation of the workers' trainers (isthmus/session.h). The run knows no model, data or device.
#pragma once

#include <functional>
#include <memory>

#include "core/base/events.h"
#include "isthmus/session.h"

namespace isthmus::app {

/// Makes the trainer of worker `context.rank`, on the worker's task. `events`: the run's, may be
/// null; borrowed until `train_alone`.
using MakeTrainer =
    std::function<std::unique_ptr<Trainer>(const WorkerContext& context, EventSink* events)>;

}  // namespace isthmus::app
