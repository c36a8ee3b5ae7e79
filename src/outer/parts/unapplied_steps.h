// SPDX-License-Identifier: Apache-2.0
// Finds the inner steps that the outer parameters of a saved state do not contain: those of open
// windows and of rounds in flight. Commands that copy a checkpoint's model report them. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "isthmus/state.h"

namespace isthmus::outer {

struct UnappliedSteps {
  std::int64_t first = 0;
  std::int64_t last = 0;
  bool some_fragments = false;  // other fragments lack fewer steps
  bool in_part = false;         // the workers' own parts of the round in flight are contained
                                // (eager)
};

/// `state`: written by OuterStrategy::save after step `step`. Absent: every step is contained.
/// THROWS: RunError when an entry has another type.
[[nodiscard]] std::optional<UnappliedSteps> unapplied_steps(StateReader& state, std::int64_t step);

/// "steps 1 to 20 are in no round that has been applied, so this model does not hold them".
[[nodiscard]] std::string unapplied_text(const UnappliedSteps& steps);

}  // namespace isthmus::outer
