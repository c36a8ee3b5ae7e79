// SPDX-License-Identifier: Apache-2.0
// What the model of a checkpoint does not hold of its run's steps, for the commands that copy it or
// begin from it.
#pragma once

#include <optional>
#include <string>

#include "core/state/checkpoint.h"
#include "isthmus/config.h"
#include "outer/parts/unapplied_steps.h"

namespace isthmus::app {

/// By the state of the checkpoint's first worker. Nothing: its model holds every step.
[[nodiscard]] std::optional<outer::UnappliedSteps> unapplied_steps_of(const Checkpoint& checkpoint);

/// The same by the schedule alone, for a run that has stopped after step `step`; empty: every step
/// is held.
[[nodiscard]] std::string unapplied_text_at(const Config& config, std::int64_t step);

/// What the checkpoint that `config` begins from (model.init) does not hold of its run's steps;
/// empty: nothing, or no checkpoint.
[[nodiscard]] std::string unapplied_text_of_init(const Storage& storage, const Config& config);

}  // namespace isthmus::app
