// SPDX-License-Identifier: Apache-2.0
// The cost of a language model's run: operations and time of a step, measured or declared, and the
// closed form's prediction of the whole run.
#pragma once

#include <vector>

#include "app/train/training_plan.h"
#include "data/dataset.h"
#include "inner/model/model_layout.h"
#include "plan/prediction.h"
#include "record/round_times.h"
#include "session/run/run_backends.h"

namespace isthmus::app {

/// A run in its world, and its model; borrowed.
struct ModelRun {
  const RunWorld& world;
  const TrainingPlan& plan;
  const ModelLayout& layout;
};

/// Floating-point operations of one worker's inner step (forward and backward).
[[nodiscard]] double step_flops(const Config& config, const TrainingPlan& plan,
                                const ModelLayout& layout);

/// Real length of one inner step of worker 0, measured on this machine if the configuration
/// declares none; else zero.
[[nodiscard]] Duration measure_step(const Config& config, const TrainingPlan& plan,
                                    const Dataset& data);

/// The same, always measured.
[[nodiscard]] Duration time_step(const Config& config, const TrainingPlan& plan,
                                 const Dataset& data);

/// The closed form's prediction for a run over declared links. `measured_steps`: one a worker, or
/// one for all; for steps that are not declared, over real links for all.
[[nodiscard]] Prediction predict_run(const ModelRun& run,
                                     const std::vector<Duration>& measured_steps);
/// For a separate site: why a run of `measured_s` cannot have used the links that the file
/// declares, since it was faster than they allow; empty if it may have.
[[nodiscard]] std::string why_links_were_absent(const Config& config, const Prediction& prediction,
                                                double measured_s);
/// The prediction for single rounds, at the worker whose rounds WorldResult has. Empty for methods
/// without a known mapping of rounds to steps.
[[nodiscard]] RoundTimes predict_run_rounds(const ModelRun& run,
                                            const std::vector<Duration>& measured_steps);

}  // namespace isthmus::app
