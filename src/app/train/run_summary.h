// SPDX-License-Identifier: Apache-2.0
// summary.json and links.json of a run directory, and the last lines of a command's output.
#pragma once

#include <string>

#include "app/train/training.h"
#include "record/run_directory.h"
#include "session/run/run_backends.h"

namespace isthmus::app {

/// The clock that a prediction is compared with: the run's, without its faults if that is known
/// exactly.
[[nodiscard]] double clock_predicted(const TrainingOutcome& outcome);

/// Writes both files. Compares `outcome.prediction` with the clock that it predicts.
void write_summary(RunDirectory& directory, const Config& config, const TrainingOutcome& outcome,
                   const WorldResult& result);

/// The end of `train` and `simulate`: losses, bytes, time, the files' places.
[[nodiscard]] std::string render_outcome(const Config& config, const TrainingOutcome& outcome);

/// The following part, for a run with a prediction: each term, and round by round. Empty without a
/// prediction.
[[nodiscard]] std::string render_outcome_prediction(const TrainingOutcome& outcome);

/// The outcome as one JSON object.
[[nodiscard]] std::string outcome_json(const TrainingOutcome& outcome);

}  // namespace isthmus::app
