// SPDX-License-Identifier: Apache-2.0
// Steps of a run that a checkpoint's model does not include, for commands that copy it or begin
// from it.
#pragma once

#include <optional>
#include <string>

#include "core/state/checkpoint.h"
#include "isthmus/config.h"
#include "outer/parts/unapplied_steps.h"

namespace isthmus::app {

/// From the state of the checkpoint's first worker, or of its only one. Nothing: the model includes
/// every step. THROWS: SystemError when the state cannot be read.
[[nodiscard]] std::optional<outer::UnappliedSteps> unapplied_steps_of(const Checkpoint& checkpoint);

/// The same from the schedule alone, for a run that has stopped after step `step`; empty: every
/// step is included.
[[nodiscard]] std::string unapplied_text_at(const Config& config, std::int64_t step);

/// The steps that the checkpoint of model.init does not include; empty: none, no checkpoint, or one
/// without a readable state.
[[nodiscard]] std::string unapplied_text_of_init(const Storage& storage, const Config& config);

}  // namespace isthmus::app
