// SPDX-License-Identifier: Apache-2.0
// What keeps a step whose loss is not finite from changing anything.
#pragma once

#include "kernels/cuda/cross_entropy.h"
#include "kernels/cuda/device.h"

namespace isthmus::cuda {

/// *squares := NaN, with which the optimizers change nothing, where the loss or z-loss of `totals`
/// is not finite. Both on the device; one thread.
void guard_step(Stream& stream, const LossTotals* totals, double* squares);

}  // namespace isthmus::cuda
