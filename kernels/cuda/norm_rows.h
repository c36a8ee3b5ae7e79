// SPDX-License-Identifier: Apache-2.0
// Assignment of a norm's rows to the warps of a block, and sums over a row.
#pragma once

#include <cstdint>

#include "kernels/cuda/simt.h"

namespace isthmus::cuda {

inline constexpr int kBlockWarps = 8;
inline constexpr int kMostRowWarps = 16;

/// `warps` warps per row (a power of two), `groups` rows at a time.
struct RowShape {
  int warps = 1;
  int groups = kBlockWarps;
};

/// In a kernel: this thread's position in its row.
struct Place {
  int group;   // the row among those of the block
  int thread;  // among the row's threads
  int threads;
};
__device__ inline Place place_in(RowShape shape) {
  const int threads = shape.warps * kWarp;
  const int t = static_cast<int>(threadIdx.x);
  return {t / threads, t % threads, threads};
}

/// Both sums over a row's threads, on each of them. All threads of the block must call it.
/// `scratch`: one value per warp; the call after the next may reuse it.
__device__ inline float2 row_sums(RowShape shape, float a, float b, float2* scratch) {
  a = warp_sum(a);
  b = warp_sum(b);
  if (shape.warps == 1) return make_float2(a, b);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  if (static_cast<int>(threadIdx.x) % kWarp == 0) scratch[warp] = make_float2(a, b);
  __syncthreads();
  const int first = warp / shape.warps * shape.warps;
  float2 sums = make_float2(0, 0);
  for (int w = first; w < first + shape.warps; ++w) {
    sums.x += scratch[w].x;
    sums.y += scratch[w].y;
  }
  return sums;
}

/// A matrix of heads: row r of (rows * heads) begins at (r / heads) * row + (r % heads) * channels.
struct NormedHeads {
  std::int64_t heads = 1, row = 0, channels = 0;
};
__device__ inline std::int64_t begin_of(NormedHeads rows, std::int64_t r) {
  if (rows.heads == 1) return r * rows.row;
  return r / rows.heads * rows.row + r % rows.heads * rows.channels;
}

/// Number of warps for rows of `units` accesses, of which a thread holds up to `held`.
inline RowShape row_shape(std::int64_t units, int held) {
  RowShape shape;
  while (std::int64_t{shape.warps} * kWarp * held < units) shape.warps *= 2;
  shape.groups = shape.warps < kBlockWarps ? kBlockWarps / shape.warps : 1;
  return shape;
}

}  // namespace isthmus::cuda
