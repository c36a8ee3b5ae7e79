// SPDX-License-Identifier: Apache-2.0
// The outer optimizers on the device, with the bits of kernels/outer_step.h.
#pragma once

#include <cstddef>

#include "kernels/cuda/device.h"
#include "kernels/outer_step.h"

namespace isthmus::cuda {

/// x, d, b: (n,) float32 on the device, not overlapping; b null without momentum.
/// Memory: 12 bytes an element (sgd), 20 with momentum.
void outer_step(Stream& stream, const kernels::OuterStep& step, std::size_t n, float* x,
                const float* d, float* b);

}  // namespace isthmus::cuda
