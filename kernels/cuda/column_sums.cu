// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/activation.h"
#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/pack.h"

namespace isthmus::cuda {
namespace {

constexpr int kSumWarps = 32;  // that share the rows of a column's partial sums
constexpr int kParts = 128;    // blocks that share the rows of a matrix
constexpr int kPartWarps = 8;  // warps of such a block
template <typename T>
constexpr int kMostWidth = 16 / sizeof(T);  // columns a lane: one access of a lane is 16 bytes

// A block sums 32 columns: lane = column, each warp every 32nd row.
__global__ void __launch_bounds__(kSumWarps* kWarp)
    add_partial_sums_kernel(std::int64_t parts, std::int64_t columns, std::int64_t ld,
                            const float* partial, float* sum) {
  ISTHMUS_SHARED(float, sums, [kSumWarps][kWarp + 1]);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t column = std::int64_t{blockIdx.x} * kWarp + lane;
  float own = 0;
  if (column < columns) {
    for (std::int64_t part = warp; part < parts; part += kSumWarps) {
      own += partial[part * ld + column];
    }
  }
  sums[warp][lane] = own;
  __syncthreads();
  // Transposed, so that a warp folds one column; every warp takes one of the 32 columns.
  const float folded = warp_sum(sums[lane][warp]);
  const std::int64_t folded_column = std::int64_t{blockIdx.x} * kWarp + warp;
  if (lane == 0 && folded_column < columns) sum[folded_column] += folded;
}

// Reads each value once. Warps of a block take every eighth row of the block's rows.
template <typename T, int kWidth>
__global__ void column_sums_kernel(std::int64_t rows, std::int64_t columns, const T* x,
                                   float* partial) {
  ISTHMUS_SHARED(float, sums, [kPartWarps][kWarp * kMostWidth<T>]);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t first = (std::int64_t{blockIdx.x} * kWarp + lane) * kWidth;
  const std::int64_t begin = rows * blockIdx.y / kParts;
  const std::int64_t end = rows * (blockIdx.y + 1) / kParts;
  float own[kWidth] = {};
  if (first < columns) {
#pragma unroll 8
    for (std::int64_t r = begin + warp; r < end; r += kPartWarps) {
      float v[kWidth];
      load_pack<kWidth>(x + r * columns + first, v);
      for (int i = 0; i < kWidth; ++i) own[i] += v[i];
    }
  }
  for (int i = 0; i < kWidth; ++i) sums[warp][lane * kWidth + i] = own[i];
  __syncthreads();
  const int column = static_cast<int>(threadIdx.x);
  const std::int64_t at = std::int64_t{blockIdx.x} * kWarp * kWidth + column;
  if (column >= kWarp * kWidth || at >= columns) return;
  float total = 0;
  for (int w = 0; w < kPartWarps; ++w) total += sums[w][column];
  partial[blockIdx.y * columns + at] = total;
}

template <typename T, int kWidth>
void launch_column_sums(Stream& stream, std::int64_t rows, std::int64_t columns, const T* x,
                        float* partial) {
  const std::int64_t tile = kWarp * kWidth;
  launch(stream,
         {.blocks = dim3(static_cast<unsigned>((columns + tile - 1) / tile), kParts),
          .threads = dim3(kPartWarps * kWarp)},
         column_sums_kernel<T, kWidth>, rows, columns, x, partial);
}

}  // namespace

void add_partial_sums(Stream& stream, std::int64_t parts, std::int64_t columns, std::int64_t ld,
                      const float* partial, float* sum) {
  launch(stream,
         {.blocks = dim3(static_cast<unsigned>((columns + kWarp - 1) / kWarp)),
          .threads = dim3(kSumWarps * kWarp)},
         add_partial_sums_kernel, parts, columns, ld, partial, sum);
}

std::size_t column_sum_scratch(std::int64_t columns) {
  return static_cast<std::size_t>(kParts * columns);
}

template <typename T>
void add_column_sums(Stream& stream, std::int64_t rows, std::int64_t columns, const T* x,
                     float* sum, float* scratch) {
  if (rows == 0 || columns == 0) return;
  if (fits_packs(kMostWidth<T>, x, columns)) {
    launch_column_sums<T, kMostWidth<T>>(stream, rows, columns, x, scratch);
  } else {
    launch_column_sums<T, 1>(stream, rows, columns, x, scratch);
  }
  add_partial_sums(stream, kParts, columns, columns, scratch, sum);
}
template void add_column_sums(Stream&, std::int64_t, std::int64_t, const Bf16*, float*, float*);
template void add_column_sums(Stream&, std::int64_t, std::int64_t, const float*, float*, float*);

}  // namespace isthmus::cuda
