// SPDX-License-Identifier: Apache-2.0
// The clipping factor from a step's norm, in the kernels of all optimizers.
#pragma once

#include "kernels/cuda/optimizer.h"
#include "kernels/cuda/simt.h"

namespace isthmus::cuda {

__device__ inline bool is_finite(double x) { return x - x == 0; }

/// Factor of the gradients, as kernels::clip_coefficient; the sum of squares must be finite.
__device__ inline float clip_factor(const StepNumbers& numbers, double squares) {
  constexpr double kClipEpsilon = 1e-6;
  if (numbers.clip == 0) return numbers.factor;
  const double ratio = static_cast<double>(numbers.clip) / (sqrt(squares) + kClipEpsilon);
  return static_cast<float>(ratio < 1 ? ratio : 1);
}

}  // namespace isthmus::cuda
