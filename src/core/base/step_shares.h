// SPDX-License-Identifier: Apache-2.0
// How the time of one inner step divides into its forward and its backward pass.
#pragma once

namespace isthmus {

/// Forward takes one third of a step, backward two (two matrix products for each one of forward);
/// gradients become final in backward order, in time proportional to their number. So the clock of
/// `simulate` announces them, and so they are predicted.
inline constexpr double kForwardShare = 1.0 / 3.0;

}  // namespace isthmus
