// SPDX-License-Identifier: Apache-2.0
// A run diverges, and ends, when its trainer reports a loss or gradient norm that is not finite:
// its next outer gradient would carry that to all sites. The built-in trainer checks it before the
// update; for a caller's trainer TimedInnerLoop checks it.
#pragma once

#include <string_view>

#include "isthmus/inner_loop.h"

namespace isthmus::app {

/// A skipped step (InnerStep::idle) may report any value: a gradient scaler skips a step because of
/// such a value. THROWS: RunError naming step and value; ConfigError for numbers below 0 where none
/// can be.
void check_finite(StepIndex t, const InnerStep& step);

/// Whether `cause` is the error text of a diverged run, from either check.
[[nodiscard]] bool has_diverged(std::string_view cause);

}  // namespace isthmus::app
