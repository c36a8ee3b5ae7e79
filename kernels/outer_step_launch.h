// SPDX-License-Identifier: Apache-2.0
// What outer_step.cu offers to its host side.
#pragma once

#include <cstddef>

#include "kernels/outer_step.h"

namespace isthmus::kernels {

/// Queues the kernel. x, d, b: n floats of device memory; n >= 1. THROWS: SystemError.
void launch_outer_step(const OuterStep& step, std::size_t n, float* x, const float* d, float* b);

}  // namespace isthmus::kernels
