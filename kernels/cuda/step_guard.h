// SPDX-License-Identifier: Apache-2.0
// Keeps a step with a loss that is not finite from changing any state.
#pragma once

#include "kernels/cuda/cross_entropy.h"
#include "kernels/cuda/device.h"

namespace isthmus::cuda {

/// *squares := NaN if the loss or z-loss of `totals` is not finite; the optimizers then change
/// nothing. Both on the device; one thread.
void guard_step(Stream& stream, const LossTotals* totals, double* squares);

}  // namespace isthmus::cuda
