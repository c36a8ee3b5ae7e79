// SPDX-License-Identifier: Apache-2.0
// 12 bytes moved an element (sgd) or 20, so bound by device memory.
#include "kernels/cuda/grid.h"
#include "kernels/cuda/outer_step.h"
#include "kernels/outer_step_math.h"

namespace isthmus::cuda {
namespace {

__global__ void step_kernel(kernels::OuterStep step, std::size_t n, float* x, const float* d,
                            float* b) {
  for (std::size_t i = first_element(); i < n; i += element_stride()) {
    switch (step.rule) {
      case kernels::OuterStepRule::kSgd:
        kernels::sgd_element(x[i], d[i], step.eta);
        break;
      case kernels::OuterStepRule::kNesterov:
        kernels::nesterov_element(x[i], d[i], b[i], step.eta, step.mu);
        break;
      case kernels::OuterStepRule::kHeavyBall:
        kernels::heavy_ball_element(x[i], d[i], b[i], step.eta, step.mu);
        break;
    }
  }
}

}  // namespace

void outer_step(Stream& stream, const kernels::OuterStep& step, std::size_t n, float* x,
                const float* d, float* b) {
  if (n == 0) return;
  launch(stream, elements_shape(n), step_kernel, step, n, x, d, b);
}

}  // namespace isthmus::cuda
