// SPDX-License-Identifier: Apache-2.0
// Division of the time of one inner step into forward and backward pass.
#pragma once

namespace isthmus {

/// Forward takes one third of a step, backward two thirds (two matrix products for each forward
/// one). Gradients become final in backward order, in time proportional to their number. The clock
/// of `simulate` and the prediction use these shares.
inline constexpr double kForwardShare = 1.0 / 3.0;

}  // namespace isthmus
