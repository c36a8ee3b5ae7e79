// SPDX-License-Identifier: Apache-2.0
// CUDA devices of this machine. In a build without CUDA the same functions say so.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace isthmus::kernels {

struct CudaDevice {
  int ordinal = 0;
  std::string name;
  int compute_major = 0;
  int compute_minor = 0;
  std::size_t memory_bytes = 0;
};

/// Devices this process may use; empty when there is none, and `cuda_unavailable` says why.
[[nodiscard]] std::vector<CudaDevice> cuda_devices();

/// Why no CUDA device can be used, for example "this build has no CUDA kernels"; empty when one
/// can.
[[nodiscard]] std::string cuda_unavailable();

}  // namespace isthmus::kernels
