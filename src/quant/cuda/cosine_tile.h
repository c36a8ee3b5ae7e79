// SPDX-License-Identifier: Apache-2.0
// dct-topk's transform (quant/codecs/cosine_transform.h) of a tile in shared memory, with the CPU's
// bits: a thread has 16 results, each a sum of 64 products in index order from zero, every product
// and sum rounded separately. 256 operations a value, so it is bound by arithmetic, not by memory.
#pragma once

#include "quant/cuda/tile.h"
#include "quant/math/cosine_math.h"

namespace isthmus::cuda {

namespace cosine {

inline constexpr unsigned kSide = kCosineSide;
inline constexpr unsigned kApart = kTileThreads / kSide;            // rows between two rows of a
                                                                    // thread
inline constexpr unsigned kResults = kSide * kSide / kTileThreads;  // results per thread

/// Four products in order, each rounded before it is added.
__device__ inline void add_products(float& sum, const float4& a, const float4& b) {
  sum += a.x * b.x;
  sum += a.y * b.y;
  sum += a.z * b.z;
  sum += a.w * b.w;
}

/// out[r][u] := sum_i by_columns[i][u] in[r][i] for `rows` rows. No barrier.
__device__ inline void multiply_rows(const float* by_columns, const float* in, unsigned rows,
                                     float* out) {
  const unsigned u = threadIdx.x % kSide;
  const unsigned first = threadIdx.x / kSide;
  float sum[kResults] = {};
  for (unsigned i = 0; i < kSide; i += 4) {
    const float* const at = by_columns + i * kSide + u;
    const float4 factors = make_float4(at[0], at[kSide], at[2 * kSide], at[3 * kSide]);
#pragma unroll
    for (unsigned j = 0; j < kResults; ++j) {
      const unsigned r = first + kApart * j;
      if (r < rows) add_products(sum[j], factors, load_as<float4>(in + r * kSide + i));
    }
  }
#pragma unroll
  for (unsigned j = 0; j < kResults; ++j) {
    const unsigned r = first + kApart * j;
    if (r < rows) out[r * kSide + u] = sum[j];
  }
}

/// out[u][c] := sum_i by_columns[i][u] in[i][c] for a whole tile. No barrier.
__device__ inline void multiply_columns(const float* by_columns, const float* in, float* out) {
  const unsigned c = threadIdx.x % kSide;
  const unsigned first = threadIdx.x / kSide * kResults;
  float sum[kResults] = {};
  for (unsigned i = 0; i < kSide; ++i) {
    const float value = in[i * kSide + c];
#pragma unroll
    for (unsigned j = 0; j < kResults; j += 4) {
      const auto factors = load_as<float4>(by_columns + i * kSide + first + j);
      sum[j] += factors.x * value;
      sum[j + 1] += factors.y * value;
      sum[j + 2] += factors.z * value;
      sum[j + 3] += factors.w * value;
    }
  }
#pragma unroll
  for (unsigned j = 0; j < kResults; ++j) out[(first + j) * kSide + c] = sum[j];
}

/// tile := its transform, through `half`, another tile; in a shorter tile the values after the last
/// full row do not change. Ends with a barrier.
__device__ inline void transform(const float* by_columns, unsigned n, float* tile, float* half) {
  const bool whole = n == kTileValues;
  const unsigned rows = n / kSide;
  __syncthreads();
  multiply_rows(by_columns, tile, rows, half);
  __syncthreads();
  if (whole) {
    multiply_columns(by_columns, half, tile);
  } else {
    for (unsigned i = threadIdx.x; i < rows * kSide; i += kTileThreads) tile[i] = half[i];
  }
  __syncthreads();
}

}  // namespace cosine

/// tile, half: kTileValues floats of shared memory each.
__device__ inline void to_coefficients(const CosineMatrices& matrices, unsigned n,
                                       const ChunkValues& v, ChunkValues& coefficients, float* tile,
                                       float* half) {
  for (int c = 0; c < kChunks; ++c) {
    for (unsigned e = 0; e < kChunkValues; ++e) tile[chunk_place(c) + e] = cosine_guarded(v[c][e]);
  }
  cosine::transform(matrices.backward, n, tile, half);
  for (int c = 0; c < kChunks; ++c) {
    for (unsigned e = 0; e < kChunkValues; ++e) {
      coefficients[c][e] = with_one_nan(tile[chunk_place(c) + e]);
    }
  }
}

/// tile := the values of its coefficients.
__device__ inline void from_coefficients(const CosineMatrices& matrices, unsigned n, float* tile,
                                         float* half) {
  cosine::transform(matrices.forward, n, tile, half);
  for (unsigned i = threadIdx.x; i < kTileValues; i += kTileThreads) {
    tile[i] = cosine_unguarded(tile[i]);
  }
  __syncthreads();
}

}  // namespace isthmus::cuda
