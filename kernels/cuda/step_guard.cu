// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/simt.h"
#include "kernels/cuda/step_guard.h"

namespace isthmus::cuda {
namespace {

// x - x is 0 for finite x alone.
__global__ void guard_step_kernel(const LossTotals* totals, double* squares) {
  const double zero = (totals->loss - totals->loss) + (totals->z_loss - totals->z_loss);
  if (threadIdx.x == 0 && zero != 0) *squares = zero;
}

}  // namespace

void guard_step(Stream& stream, const LossTotals* totals, double* squares) {
  launch(stream, {.threads = dim3(32)}, guard_step_kernel, totals, squares);
}

}  // namespace isthmus::cuda
