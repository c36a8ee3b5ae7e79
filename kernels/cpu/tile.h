// SPDX-License-Identifier: Apache-2.0
// The inner loop of every matrix product: a tile of C in registers; each step of k multiplies
// broadcast values of A with vectors of B. Include after one of simd_*.h.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cpu/product.h"

namespace isthmus::kernels {
namespace {

inline std::int64_t blocks_of(std::int64_t n, std::int64_t block) {
  return (n + block - 1) / block;
}
inline std::int64_t at_most(std::int64_t n, std::int64_t limit) { return n < limit ? n : limit; }

inline constexpr int kTileColumns = Simd::kWidth * Simd::kTileVectors;

/// A operand of a tile: step p of row i at data[i * row + p * step].
struct TileA {
  const float* data = nullptr;
  std::int64_t row = 0;
  std::int64_t step = 0;
};

/// B operand of a tile: the row of step p at data + p * step.
struct TileB {
  const float* data = nullptr;
  std::int64_t step = kTileColumns;
};

/// A row that is contiguous in k, used in place as steps.
inline constexpr auto lanes_of = [](const auto* row) {
  return reinterpret_cast<const float*>(row);
};

/// One step of A; those of lanes_of were not stored as floats.
[[gnu::always_inline]] inline float lane_at(const float* data) {
  float lane;
  std::memcpy(&lane, data, sizeof lane);
  return lane;
}

/// acc[i][j] += sum over steps p < k of A(i, p) B(p, j-th vector), B rows b_step apart, p
/// ascending.
template <typename Product, int R, int V>
[[gnu::always_inline]] inline void multiply_tile(const TileA& a, const float* b,
                                                 std::int64_t b_step, std::int64_t k,
                                                 Simd::V (&acc)[R][V]) {
  const float* a_data = a.data;
#pragma GCC unroll 4
  for (std::int64_t p = 0; p < k; ++p) {
    Simd::V b_row[V];
    for (int j = 0; j < V; ++j) b_row[j] = Simd::load(b + j * Simd::kWidth);
    for (int i = 0; i < R; ++i) {
      const Simd::V a_value = Simd::set(lane_at(a_data + i * a.row));
      for (int j = 0; j < V; ++j) acc[i][j] = Product::multiply_add(a_value, b_row[j], acc[i][j]);
    }
    a_data += a.step;
    b += b_step;
  }
}

/// Address of a tile of C, and the mask of its last vector.
struct TileC {
  float* data = nullptr;
  std::int64_t row = 0;
  bool add = false;  // C += tile rather than C = tile
  Simd::Mask last;
};

template <typename Product, int R, int V>
void run_tile(const TileA& a, const TileB& b, std::int64_t depth, const TileC& c) {
  constexpr std::int64_t kW = Simd::kWidth;
  Simd::V acc[R][V];
  for (int i = 0; i < R; ++i) {
    for (int j = 0; j < V; ++j) {
      acc[i][j] = Simd::zero();
      __builtin_prefetch(c.data + i * c.row + j * kW, 1);
    }
  }
  multiply_tile<Product, R, V>(a, b.data, b.step, depth, acc);
  for (int i = 0; i < R; ++i) {
    float* row = c.data + i * c.row;
    for (int j = 0; j + 1 < V; ++j) {
      if (c.add) acc[i][j] = Simd::add(Simd::load(row + j * kW), acc[i][j]);
      Simd::store(row + j * kW, acc[i][j]);
    }
    float* end = row + (V - 1) * kW;
    if (c.add) acc[i][V - 1] = Simd::add(Simd::load(end, c.last), acc[i][V - 1]);
    Simd::store(end, acc[i][V - 1], c.last);
  }
}

using TileFunction = void (*)(const TileA&, const TileB&, std::int64_t, const TileC&);

template <typename Product, int V>
TileFunction tile_function(std::int64_t rows) {
  static_assert(Simd::kTileRows == 6);
  constexpr TileFunction kByRows[6] = {run_tile<Product, 1, V>, run_tile<Product, 2, V>,
                                       run_tile<Product, 3, V>, run_tile<Product, 4, V>,
                                       run_tile<Product, 5, V>, run_tile<Product, 6, V>};
  return kByRows[rows - 1];
}

template <typename Product>
TileFunction tile_function(std::int64_t rows, std::int64_t vectors) {
  if (vectors == 1) return tile_function<Product, 1>(rows);
  if (vectors == 2) return tile_function<Product, 2>(rows);
  if constexpr (Simd::kTileVectors == 4) {
    if (vectors == 3) return tile_function<Product, 3>(rows);
    return tile_function<Product, 4>(rows);
  }
  return tile_function<Product, 2>(rows);
}

/// How the blocked product of gemm_fast.h takes tiles of a Product: here, in vector registers.
template <typename Product>
struct TilesOf {
  static constexpr std::int64_t kRows = Simd::kTileRows;  // of a tile of C
  static constexpr std::int64_t kSteps = 1;     // blocks of k have a multiple of so many steps
  static constexpr bool kPacksRowsOfA = false;  // a packed A has rows, transposed or not
  struct Held {};                               // what a thread holds while it multiplies
  /// rows <= kRows; as many vectors of C.
  static void run(const TileA& a, const TileB& b, std::int64_t depth, std::int64_t rows,
                  std::int64_t vectors, const TileC& c) {
    tile_function<Product>(rows, vectors)(a, b, depth, c);
  }
};

/// C (rows, columns) (+)= A (rows, depth) times B in panels `panel_stride` apart. Vectors of C are
/// written whole: columns beyond `columns` up to a multiple of the vector's width hold what the
/// panels' padding gives.  REQUIRES: rows <= kTileRows, depth and columns >= 1.
template <typename Product = Fp32Product>
void multiply_row_tile(const TileA& a, std::int64_t rows, const float* b, std::int64_t panel_stride,
                       std::int64_t depth, std::int64_t columns, float* c, std::int64_t ldc,
                       bool add) {
  for (std::int64_t j = 0; j < columns; j += kTileColumns, b += panel_stride) {
    const std::int64_t vectors = blocks_of(at_most(columns - j, kTileColumns), Simd::kWidth);
    tile_function<Product>(rows, vectors)(a, {b}, depth,
                                          {c + j, ldc, add, Simd::first(Simd::kWidth)});
  }
}

}  // namespace
}  // namespace isthmus::kernels
