// SPDX-License-Identifier: Apache-2.0
// What a language model's run takes: operations and time of a step, measured or declared, and the
// whole run as the closed form predicts it.
#pragma once

#include <vector>

#include "app/train/training_plan.h"
#include "data/dataset.h"
#include "inner/model/model_layout.h"
#include "plan/prediction.h"
#include "record/round_times.h"
#include "session/run/run_worlds.h"

namespace isthmus::app {

/// A run in its world, and what it trains; borrowed.
struct ModelRun {
  const RunWorld& world;
  const TrainingPlan& plan;
  const ModelLayout& layout;
};

/// Floating-point operations of one worker's inner step (forward and backward).
[[nodiscard]] double step_flops(const Config& config, const TrainingPlan& plan,
                                const ModelLayout& layout);

/// Real length of one inner step of worker 0, measured on this machine, where the configuration
/// declares none; else zero.
[[nodiscard]] Duration measure_step(const Config& config, const TrainingPlan& plan,
                                    const Dataset& data);

/// The same, measured whatever is declared.
[[nodiscard]] Duration time_step(const Config& config, const TrainingPlan& plan,
                                 const Dataset& data);

/// What the closed form says of a run over declared links. `measured_steps`: one a worker, or one
/// for all; of steps that are not declared, over real links of all.
[[nodiscard]] Prediction predict_run(const ModelRun& run,
                                     const std::vector<Duration>& measured_steps);
/// Of a site apart: why a run of `measured_s` cannot have been over the links that the file
/// declares, since it was faster than these allow; empty where it may have been.
[[nodiscard]] std::string why_links_were_absent(const Config& config, const Prediction& prediction,
                                                double measured_s);
/// ... and of its single rounds, at the worker whose rounds WorldResult has. Empty for methods of
/// which it does not say which step is which.
[[nodiscard]] RoundTimes predict_run_rounds(const ModelRun& run,
                                            const std::vector<Duration>& measured_steps);

}  // namespace isthmus::app
