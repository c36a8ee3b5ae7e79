// SPDX-License-Identifier: Apache-2.0
// A run whose trainer tells a loss or a gradient norm that is no number has diverged, and ends: its
// next outer gradient would carry that to all sites. The built-in trainer finds it by itself before
// the update; a trainer of the caller's is told by the loop on the run's clock.
#pragma once

#include <string_view>

#include "isthmus/inner_loop.h"

namespace isthmus::app {

/// A step that the worker has left out (InnerStep::idle) may tell anything: a gradient scaler's is
/// left out for that very reason. THROWS: RunError naming step and value.
void check_finite(StepIndex t, const InnerStep& step);

/// Whether this is the text of a run that has diverged, whoever has found it.
[[nodiscard]] bool has_diverged(std::string_view cause);

}  // namespace isthmus::app
