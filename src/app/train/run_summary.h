// SPDX-License-Identifier: Apache-2.0
// summary.json and links.json of a run directory, and the few lines a command ends with.
#pragma once

#include <string>

#include "app/train/training.h"
#include "record/run_directory.h"
#include "session/run/run_worlds.h"

namespace isthmus::app {

/// What a prediction is of: the run's clock, without its faults where
/// that is known exactly.
[[nodiscard]] double clock_predicted(const TrainingOutcome& outcome);

/// Writes both files. `outcome.prediction` is compared with the clock that it predicts.
void write_summary(RunDirectory& directory, const Config& config, const TrainingOutcome& outcome,
                   const WorldResult& result);

/// The end of `train` and `simulate`: losses, bytes, time, where the files are.
[[nodiscard]] std::string render_outcome(const Config& config, const TrainingOutcome& outcome);

/// What comes below, of a run whose prediction says so: each term, and round by round. Empty
/// where nothing was predicted.
[[nodiscard]] std::string render_outcome_prediction(const TrainingOutcome& outcome);

/// The outcome as one JSON object.
[[nodiscard]] std::string outcome_json(const TrainingOutcome& outcome);

}  // namespace isthmus::app
