// SPDX-License-Identifier: Apache-2.0
// The mark of an absent number in values that are read from a run's files.
#pragma once

#include <limits>

namespace isthmus::report {

/// Stands for a number that is absent, null or not finite.
inline constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();

}  // namespace isthmus::report
