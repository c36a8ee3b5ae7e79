// SPDX-License-Identifier: Apache-2.0
// The inner loop of every matrix product here: a tile of C held in registers, one row of A values
// broadcast against vectors of B at each step of k. Include after one of simd_*.h.
#pragma once

#include <cstdint>

namespace isthmus::kernels {
namespace {

inline constexpr int kTileColumns = Simd::kWidth * Simd::kTileVectors;

/// A operand of a tile: element (i, p) at data[i * row + p * step].
struct TileA {
  const float* data = nullptr;
  std::int64_t row = 0;
  std::int64_t step = 0;
};

/// acc[i][j] += sum over p < k of A(i, p) B(p, j-th vector), B rows b_step apart, p ascending.
template <int R, int V>
[[gnu::always_inline]] inline void multiply_tile(const TileA& a, const float* b,
                                                 std::int64_t b_step, std::int64_t k,
                                                 Simd::V (&acc)[R][V]) {
  const float* a_data = a.data;
#pragma GCC unroll 4
  for (std::int64_t p = 0; p < k; ++p) {
    Simd::V b_row[V];
    for (int j = 0; j < V; ++j) b_row[j] = Simd::load(b + j * Simd::kWidth);
    for (int i = 0; i < R; ++i) {
      const Simd::V a_value = Simd::set(a_data[i * a.row]);
      for (int j = 0; j < V; ++j) acc[i][j] = Simd::fma(a_value, b_row[j], acc[i][j]);
    }
    a_data += a.step;
    b += b_step;
  }
}

}  // namespace
}  // namespace isthmus::kernels
