// SPDX-License-Identifier: Apache-2.0
// What computes attention on a CUDA device (train.attention).
#pragma once

#include <string_view>

namespace isthmus {

enum class DeviceAttention {
  kOwn,    // the kernels of kernels/cuda
  kCudnn,  // NVIDIA's cuDNN, or an error that says why not
  kBest,  // cuDNN's where the build has it, it is found and takes the windows, and its workspace is
          // at most an eighth of the device's memory; else the own kernels
};

/// REQUIRES: "own", "cudnn" or "auto".
[[nodiscard]] constexpr DeviceAttention parse_device_attention(std::string_view name) {
  if (name == "cudnn") return DeviceAttention::kCudnn;
  return name == "auto" ? DeviceAttention::kBest : DeviceAttention::kOwn;
}

}  // namespace isthmus
