// SPDX-License-Identifier: Apache-2.0
// Grids of kernels whose threads loop over n elements.
#pragma once

#include <algorithm>
#include <cstddef>

#include "kernels/cuda/simt.h"

namespace isthmus::cuda {

inline constexpr std::size_t kThreads = 256;

/// Number of blocks of kThreads for n elements, one element per thread; with more than 4096 blocks
/// threads take several. n >= 1.
inline LaunchShape elements_shape(std::size_t n) {
  constexpr std::size_t kMostBlocks = 4096;
  return {
      .blocks = dim3(static_cast<unsigned>(std::min((n + kThreads - 1) / kThreads, kMostBlocks))),
      .threads = dim3(kThreads)};
}

/// In such a kernel: the thread's first element, and the stride to its next one.
__device__ inline std::size_t first_element() {
  return std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
}
__device__ inline std::size_t element_stride() { return std::size_t{gridDim.x} * blockDim.x; }

}  // namespace isthmus::cuda
