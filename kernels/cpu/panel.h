// SPDX-License-Identifier: Apache-2.0
// Packing: the B operand of a tile is a panel, kTileColumns wide, with consecutive rows of k.
// Include after one of simd_*.h.
#pragma once

#include "kernels/cpu/tile.h"

namespace isthmus::kernels {
namespace {

/// Packs one step of `columns` columns (rows of k `ld` apart, of which `rows` exist) into the same
/// row of panels `panel_stride` apart; zeros after the last column.
template <typename Product, typename T>
void scatter_to_panels(const T* from, std::int64_t ld, std::int64_t rows, std::int64_t columns,
                       float* to, std::int64_t panel_stride) {
  constexpr std::int64_t kW = Simd::kWidth;
  for (; columns >= kTileColumns; columns -= kTileColumns, from += kTileColumns) {
    for (std::int64_t j = 0; j < kTileColumns; j += kW) {
      Simd::store(to + j, Product::across(from + j, ld, rows));
    }
    to += panel_stride;
  }
  if (columns == 0) return;
  for (std::int64_t j = 0; j < kTileColumns; j += kW) {
    const std::int64_t left = columns > j ? columns - j : 0;
    Simd::store(to + j, Product::across(from + j, ld, rows, Simd::first(left)));
  }
}

/// The same for tiles of kTileRows values: the A operand of a tile, whose columns are contiguous.
template <typename Product, typename T>
void scatter_to_tiles(const T* from, std::int64_t ld, std::int64_t rows, std::int64_t columns,
                      float* to, std::int64_t tile_stride) {
  for (; columns > 0; columns -= Simd::kTileRows, from += Simd::kTileRows, to += tile_stride) {
    for (std::int64_t j = 0; j < Simd::kTileRows; j += Simd::kWidth) {
      const std::int64_t left = columns > j ? columns - j : 0;
      const Simd::Mask mask = Simd::first(at_most(left, Simd::kTileRows - j));
      Simd::store(to + j, Product::across(from + j, ld, rows, mask),
                  Simd::first(Simd::kTileRows - j));
    }
  }
}

/// Packs a row along k of `values` values as consecutive steps.
template <typename Product, typename T>
void pack_row(const T* from, std::int64_t values, float* to) {
  constexpr std::int64_t kFold = Product::kFold;
  constexpr std::int64_t kAtOnce = kFold * Simd::kWidth;
  for (; values >= kAtOnce; values -= kAtOnce, from += kAtOnce, to += Simd::kWidth) {
    Simd::store(to, Product::along(from));
  }
  for (; values > 0; values -= kFold, from += kFold) {
    *to++ = Product::lane(from, at_most(values, kFold));
  }
}

/// sum += x.
template <typename T>
void add_row(const T* x, std::int64_t n, float* sum) {
  std::int64_t i = 0;
  for (; i + Simd::kWidth <= n; i += Simd::kWidth) {
    Simd::store(sum + i, Simd::add(Simd::load(sum + i), Simd::load(x + i)));
  }
  for (; i < n; ++i) sum[i] += x[i];
}

/// One panel of a transposed operand, whose rows have `values` values of k and are `ld` apart: lane
/// j of step p is stored at to[p * kTileColumns + j]; zeros from column `left` on.
template <typename Product, typename T>
void pack_transposed(const T* source, std::int64_t ld, std::int64_t left, std::int64_t values,
                     float* to) {
  constexpr std::int64_t kW = Simd::kWidth;
  constexpr std::int64_t kFold = Product::kFold;
  const std::int64_t columns = at_most(left, kTileColumns);
  for (std::int64_t j = 0; j < kTileColumns; j += kW) {
    std::int64_t k = 0;
    const T* from = source + j * ld;
    if (columns - j >= kW) {
      for (; k + kFold * kW <= values; k += kFold * kW) {
        transpose_block([&](std::int64_t i) { return Product::along(from + i * ld + k); },
                        to + k / kFold * kTileColumns + j, kTileColumns);
      }
    }
    for (; k < values; k += kFold) {
      float* row = to + k / kFold * kTileColumns + j;
      for (std::int64_t i = 0; i < kW; ++i) {
        row[i] =
            j + i < columns ? Product::lane(from + i * ld + k, at_most(values - k, kFold)) : 0.0f;
      }
    }
  }
}

}  // namespace
}  // namespace isthmus::kernels
