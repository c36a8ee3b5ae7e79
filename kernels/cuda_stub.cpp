// SPDX-License-Identifier: Apache-2.0
// Chosen by CMake when there is no CUDA: every entry refuses by name and computes nothing.
#include "isthmus/errors.h"
#include "kernels/cuda_device.h"
#include "kernels/outer_step.h"

namespace isthmus::kernels {

std::vector<CudaDevice> cuda_devices() { return {}; }

std::string cuda_unavailable() {
  return "this build has no CUDA kernels (configure with nvcc in PATH, or ISTHMUS_CUDA=ON to "
         "insist)";
}

void outer_step_cuda(const OuterStep&, std::span<float>, std::span<const float>, std::span<float>) {
  throw SystemError("device \"cuda\": " + cuda_unavailable() + "; available: cpu");
}

}  // namespace isthmus::kernels
