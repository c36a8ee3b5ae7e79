// SPDX-License-Identifier: Apache-2.0
// Packing: the B operand of a tile is a panel, kTileColumns wide, its rows of k one after another.
// Include after one of simd_*.h.
#pragma once

#include "kernels/tile.h"

namespace isthmus::kernels {
namespace {

/// Copies one row of `columns` values into the same row of panels `panel_stride` apart, zeros
/// beyond the last column.
inline void scatter_to_panels(const float* from, std::int64_t columns, float* to,
                              std::int64_t panel_stride) {
  constexpr std::int64_t kW = Simd::kWidth;
  for (; columns >= kTileColumns; columns -= kTileColumns, from += kTileColumns) {
    for (std::int64_t j = 0; j < kTileColumns; j += kW) Simd::store(to + j, Simd::load(from + j));
    to += panel_stride;
  }
  if (columns == 0) return;
  for (std::int64_t j = 0; j < kTileColumns; j += kW) {
    const std::int64_t left = columns > j ? columns - j : 0;
    Simd::store(to + j, Simd::load(from + j, Simd::first(left)));
  }
}

/// The same for tiles of kTileRows values: the A operand of a tile, read across.
inline void scatter_to_tiles(const float* from, std::int64_t columns, float* to,
                             std::int64_t tile_stride) {
  for (; columns > 0; columns -= Simd::kTileRows, from += Simd::kTileRows, to += tile_stride) {
    for (std::int64_t j = 0; j < Simd::kTileRows; j += Simd::kWidth) {
      const std::int64_t left = columns > j ? columns - j : 0;
      Simd::store(to + j, Simd::load(from + j, Simd::first(at_most(left, Simd::kTileRows - j))),
                  Simd::first(Simd::kTileRows - j));
    }
  }
}

/// sum += x.
inline void add_row(const float* x, std::int64_t n, float* sum) {
  std::int64_t i = 0;
  for (; i + Simd::kWidth <= n; i += Simd::kWidth) {
    Simd::store(sum + i, Simd::add(Simd::load(sum + i), Simd::load(x + i)));
  }
  for (; i < n; ++i) sum[i] += x[i];
}

/// One panel of a transposed operand: to[p * kTileColumns + j] = from[j * ld + p], zeros from
/// column `left` on.
inline void pack_transposed(const float* source, std::int64_t ld, std::int64_t left,
                            std::int64_t depth, float* to) {
  constexpr std::int64_t kW = Simd::kWidth;
  const std::int64_t columns = at_most(left, kTileColumns);
  for (std::int64_t j = 0; j < kTileColumns; j += kW) {
    std::int64_t p = 0;
    const float* from = source + j * ld;
    if (columns - j >= kW) {
      for (; p + kW <= depth; p += kW) {
        transpose_block(from + p, ld, to + p * kTileColumns + j, kTileColumns);
      }
    }
    for (; p < depth; ++p) {
      for (std::int64_t i = 0; i < kW; ++i) {
        to[p * kTileColumns + j + i] = j + i < columns ? from[i * ld + p] : 0.0f;
      }
    }
  }
}

}  // namespace
}  // namespace isthmus::kernels
