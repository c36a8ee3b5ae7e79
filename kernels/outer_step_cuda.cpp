// SPDX-License-Identifier: Apache-2.0
// Host side of the outer step on CUDA. Checks live here because nvcc 13 does not take the consteval
// format strings of fmt 9 that core/check.h brings.
#include "core/check.h"
#include "isthmus/errors.h"
#include "kernels/cuda_buffer.h"
#include "kernels/cuda_device.h"
#include "kernels/outer_step_launch.h"

namespace isthmus::kernels {

void outer_step_cuda(const OuterStep& step, std::span<float> x, std::span<const float> d,
                     std::span<float> b) {
  const std::size_t n = x.size();
  ISTHMUS_CHECK(d.size() == n, d.size(), n);
  ISTHMUS_CHECK(b.size() == (step.rule == OuterStepRule::kSgd ? 0 : n), b.size(), n);
  if (const std::string why = cuda_unavailable(); !why.empty()) {
    throw SystemError("device \"cuda\": " + why + "; available: cpu");
  }
  if (n == 0) return;
  CudaBuffer x_device(x);
  const CudaBuffer d_device(d);
  CudaBuffer b_device(b);
  launch_outer_step(step, n, x_device.data(), d_device.data(), b_device.data());
  x_device.copy_to(x);
  b_device.copy_to(b);
}

}  // namespace isthmus::kernels
