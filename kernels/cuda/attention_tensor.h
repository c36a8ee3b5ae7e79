// SPDX-License-Identifier: Apache-2.0
// Common part of the attention kernels for tensor cores (FlashAttention-2, Dao arXiv:2307.08691):
// tiles in shared memory, the two kinds of matrix products, and the output. A warp owns 16 kM rows
// and processes columns in tiles of 8. The lanes hold its part of a product as mma_16x8x16 does:
// element e of a lane is row lane / 4 + e / 2 * 8, column lane % 4 * 2 + e % 2.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention_kernels.h"
#include "kernels/cuda/simt.h"

namespace isthmus::cuda {

using kernels::Bf16;

/// One head's rows of one sequence; head_dim values each, zeros up to the kernel's kDim.
template <typename T>
struct HeadRows {
  T* data;
  std::int64_t stride;
};
template <typename T>
__device__ inline HeadRows<T> rows_of(const HeadsView<T>& x, std::int64_t b, std::int64_t h) {
  return {x.at(b, 0, h), x.token_stride};
}

/// Eight values of a tile whose rows have kDim values: chunks are permuted within a row so that the
/// chunks of one column in eight rows are in different banks.
template <int kDim, typename T>
__device__ inline T* chunk_at(T* tile, int row, int chunk) {
  return tile + row * kDim + (chunk ^ (row & 7)) * 8;
}

/// Begins to copy rows first .. first + kRows into `tile`; zeros after the sequence's end.
template <int kRows, int kDim, int kThreads>
__device__ inline void load_tile(Bf16* tile, const HeadRows<const Bf16>& x, std::int64_t first,
                                 const AttentionShape& shape) {
  constexpr int kChunks = kDim / 8;
  const int chunk = static_cast<int>(threadIdx.x) % kChunks;
  const bool column_inside = chunk * 8 < shape.head_dim;
#pragma unroll
  for (int i = 0; i < kRows * kChunks / kThreads; ++i) {
    const int row = static_cast<int>(threadIdx.x) / kChunks + i * (kThreads / kChunks);
    const bool inside = column_inside && first + row < shape.seq;
    async_copy_16(chunk_at<kDim>(tile, row, chunk),
                  inside ? x.data + (first + row) * x.stride + chunk * 8 : x.data, inside);
  }
}

/// products := a's rows from a_row times b's rows from b_row, transposed: sums over the head
/// dimension. REQUIRES (here and below): tiles, and first rows that are multiples of 8, so that
/// every address follows from the first one by one exclusive or and one addition.
template <int kDim, int kM, int kN>
__device__ inline void multiply(const Bf16* a, int a_row, const Bf16* b, int b_row, int lane,
                                float (&products)[kM][kN][4]) {
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int n = 0; n < kN; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) products[m][n][e] = 0;
    }
  }
  const int a_first = (a_row + lane % 16) * kDim + (lane / 16 ^ lane % 8) * 8;
  const int b_first = (b_row + lane / 16 * 8 + lane % 8) * kDim + (lane / 8 % 2 ^ lane % 8) * 8;
#pragma unroll
  for (int k = 0; k < kDim / 16; ++k) {
    std::uint32_t a_part[kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      load_matrices(a_part[m], a + (a_first ^ k * 16) + m * 16 * kDim);
    }
#pragma unroll
    for (int n = 0; n < kN; n += 2) {
      std::uint32_t b_part[4];
      load_matrices(b_part, b + (b_first ^ k * 16) + n * 8 * kDim);
      const std::uint32_t b_low[2] = {b_part[0], b_part[1]}, b_high[2] = {b_part[2], b_part[3]};
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        mma_16x8x16(products[m][n], a_part[m], b_low);
        mma_16x8x16(products[m][n + 1], a_part[m], b_high);
      }
    }
  }
}

/// sums += weights, rounded to bfloat16, times b's rows from b_row: the register layout of the
/// results of `multiply` is already that of this product's operand.
template <int kDim, int kM, int kN>
__device__ inline void accumulate(const float (&weights)[kM][kN][4], const Bf16* b, int b_row,
                                  int lane, float (&sums)[kM][kDim / 8][4]) {
  const int b_first = (b_row + lane % 16) * kDim + (lane / 16 ^ lane % 8) * 8;
#pragma unroll
  for (int k = 0; k < kN / 2; ++k) {
    std::uint32_t a_part[kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float(&from)[4] = weights[m][k * 2 + i / 2];
        a_part[m][i] = bf16_pair(from[i % 2 * 2], from[i % 2 * 2 + 1]);
      }
    }
#pragma unroll
    for (int n = 0; n < kDim / 8; n += 2) {
      std::uint32_t b_part[4];
      load_matrices_transposed(b_part, b + (b_first ^ n * 8) + k * 16 * kDim);
      const std::uint32_t b_low[2] = {b_part[0], b_part[1]}, b_high[2] = {b_part[2], b_part[3]};
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        mma_16x8x16(sums[m][n], a_part[m], b_low);
        mma_16x8x16(sums[m][n + 1], a_part[m], b_high);
      }
    }
  }
}

/// Rows first + row .. of x := factors times sums, through the warp's own rows of `tile`, which no
/// other warp reads any more, so that 16 bytes are written at once.
template <int kDim, int kM>
__device__ inline void store_rows(const float (&sums)[kM][kDim / 8][4],
                                  const float (&factors)[kM][2], Bf16* tile, int row, int lane,
                                  const HeadRows<Bf16>& x, std::int64_t first,
                                  const AttentionShape& shape) {
  __syncwarp();
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float factor = factors[m][half];
        Bf16* const to = chunk_at<kDim>(tile, row + m * 16 + half * 8 + lane / 4, n) + lane % 4 * 2;
        *reinterpret_cast<std::uint32_t*>(to) =
            bf16_pair(factor * sums[m][n][half * 2], factor * sums[m][n][half * 2 + 1]);
      }
    }
  }
  __syncwarp();
  constexpr int kChunks = kDim / 8;
  const int chunk = lane % kChunks;
#pragma unroll 4
  for (int i = lane / kChunks; i < kM * 16; i += kWarp / kChunks) {
    const std::int64_t t = first + row + i;
    if (t < shape.seq && chunk * 8 < shape.head_dim) {
      *reinterpret_cast<uint4*>(x.data + t * x.stride + chunk * 8) =
          *reinterpret_cast<const uint4*>(chunk_at<kDim>(tile, row + i, chunk));
    }
  }
}

/// The work of a block: tile `tile` of head `h` of sequence `b`.
struct HeadTile {
  std::int64_t b, h, tile;
};
__device__ inline HeadTile tile_of_block(std::int64_t tiles, std::int64_t heads) {
  const std::int64_t index = blockIdx.x;
  return {index / (tiles * heads), index / tiles % heads, index % tiles};
}

/// Number of blocks: one for every tile of `rows` rows of every head.
inline LaunchShape head_tiles_shape(const AttentionShape& shape, std::int64_t heads, int rows,
                                    int threads, int shared_bytes) {
  return {
      .blocks = dim3(static_cast<unsigned>(shape.batch * heads * ((shape.seq + rows - 1) / rows))),
      .threads = dim3(static_cast<unsigned>(threads)),
      .shared_bytes = static_cast<std::size_t>(shared_bytes)};
}

}  // namespace isthmus::cuda
