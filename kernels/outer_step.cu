// SPDX-License-Identifier: Apache-2.0
// 12 bytes moved an element (sgd) or 20, so bound by device memory. Compiled with --fmad=false.
#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/cuda_buffer.h"
#include "kernels/outer_step_launch.h"
#include "kernels/outer_step_math.h"

namespace isthmus::kernels {
namespace {

constexpr int kThreads = 256;
constexpr std::size_t kMaxBlocks = 4096;  // then each thread takes several elements

__global__ void step_kernel(OuterStep step, std::size_t n, float* x, const float* d, float* b) {
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += stride) {
    switch (step.rule) {
      case OuterStepRule::kSgd:
        sgd_element(x[i], d[i], step.eta);
        break;
      case OuterStepRule::kNesterov:
        nesterov_element(x[i], d[i], b[i], step.eta, step.mu);
        break;
      case OuterStepRule::kHeavyBall:
        heavy_ball_element(x[i], d[i], b[i], step.eta, step.mu);
        break;
    }
  }
}

}  // namespace

void launch_outer_step(const OuterStep& step, std::size_t n, float* x, const float* d, float* b) {
  const auto blocks = static_cast<unsigned>(std::min((n + kThreads - 1) / kThreads, kMaxBlocks));
  step_kernel<<<blocks, kThreads>>>(step, n, x, d, b);
  cuda_check(cudaGetLastError(), "outer step kernel");
}

}  // namespace isthmus::kernels
