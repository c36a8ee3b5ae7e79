// SPDX-License-Identifier: Apache-2.0
// The dialect of the kernels. nvcc compiles them for the device; any C++ compiler compiles them
// with emulated/simt.h, which runs a grid's threads as fibers of one CPU thread, so that tests run
// the kernels themselves without a device.
//
// The dialect: __global__, __device__, __syncthreads and the names listed here. `launch` starts a
// kernel. ISTHMUS_SHARED declares shared memory of fixed size, ISTHMUS_DYNAMIC_SHARED memory whose
// size the launch gives; both are uninitialised when a block begins. Warps are full wherever lanes
// exchange values.
#pragma once

#ifdef __CUDACC__
#include "kernels/cuda/simt_device.h"
#else
#include "cuda/emulated/simt.h"
#endif

namespace isthmus::cuda {

inline constexpr unsigned kAllLanes = 0xFFFFFFFFu;
inline constexpr int kWarp = 32;

/// Sum, and maximum, over the lanes of a warp, on every lane; in a fixed order.
template <typename T>
__device__ inline T warp_sum(T value) {
  for (int lane = kWarp / 2; lane > 0; lane /= 2) value += __shfl_xor_sync(kAllLanes, value, lane);
  return value;
}
template <typename T>
__device__ inline T warp_max(T value) {
  for (int lane = kWarp / 2; lane > 0; lane /= 2) {
    const T other = __shfl_xor_sync(kAllLanes, value, lane);
    value = other > value ? other : value;
  }
  return value;
}

/// Sum over a block's threads (full warps), on every thread, in a fixed order. `scratch`: 32 values
/// of shared memory, which may be used again after the next __syncthreads.
template <typename T>
__device__ inline T block_sum(T value, T* scratch) {
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  value = warp_sum(value);
  if (lane == 0) scratch[warp] = value;
  __syncthreads();
  value = warp_sum(lane < warps ? scratch[lane] : T{});
  return value;
}

}  // namespace isthmus::cuda
