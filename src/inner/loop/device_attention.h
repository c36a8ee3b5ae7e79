// SPDX-License-Identifier: Apache-2.0
// Implementations of attention on a CUDA device (train.attention).
#pragma once

#include <string_view>

namespace isthmus {

enum class DeviceAttention {
  kOwn,    // the kernels of kernels/cuda
  kCudnn,  // NVIDIA's cuDNN; an error names the reason if it is unavailable
  kBest,   // cuDNN if the build has it, it is found and supports the windows, and its workspace is
           // at most an eighth of the device's memory; else the kernels of kernels/cuda
};

/// REQUIRES: "own", "cudnn" or "auto".
[[nodiscard]] constexpr DeviceAttention parse_device_attention(std::string_view name) {
  if (name == "cudnn") return DeviceAttention::kCudnn;
  return name == "auto" ? DeviceAttention::kBest : DeviceAttention::kOwn;
}

}  // namespace isthmus
