// SPDX-License-Identifier: Apache-2.0
// Which inner steps the outer parameters of a saved state do not hold: those of open windows and of
// rounds in flight. Commands that copy a checkpoint's model say it. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "isthmus/state.h"

namespace isthmus::outer {

struct UnappliedSteps {
  std::int64_t first = 0;
  std::int64_t last = 0;
  bool some_fragments = false;  // of the others fewer
  bool in_part = false;         // of the round in flight the workers' own parts are held (eager)
};

/// `state`: what OuterStrategy::save wrote after step `step`. Nothing: every step is held.
/// THROWS: RunError where an entry has another type.
[[nodiscard]] std::optional<UnappliedSteps> unapplied_steps(StateReader& state, std::int64_t step);

/// "steps 1 to 20 are in no round that has been applied, so this model does not hold them".
[[nodiscard]] std::string unapplied_text(const UnappliedSteps& steps);

}  // namespace isthmus::outer
