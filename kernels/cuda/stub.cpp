// SPDX-License-Identifier: Apache-2.0
// Chosen by CMake when there is no CUDA: says so and computes nothing.
#include "kernels/cuda/device.h"
#include "kernels/cuda/device_errors.h"

namespace isthmus::cuda {

std::vector<DeviceInfo> devices() { return {}; }

std::string unavailable() {
  return "this build has no CUDA kernels (configure with nvcc in PATH, or ISTHMUS_CUDA=ON to "
         "insist)";
}

void use_device(int) { throw SystemError("CUDA: " + unavailable()); }

std::size_t shared_bytes_of_block() { return kMostSharedBytes; }

DeviceMemory device_memory() { throw SystemError("CUDA: " + unavailable()); }

std::string versions() { return ""; }

std::string driver_fault() { return ""; }

void check_alive() {}

}  // namespace isthmus::cuda
