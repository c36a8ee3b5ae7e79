// SPDX-License-Identifier: Apache-2.0
// Packing: the B operand of a tile is a panel, kTileColumns wide, its rows of k one after another.
// Include after one of simd_*.h.
#pragma once

#include "kernels/tile.h"

namespace isthmus::kernels {
namespace {

/// Copies the columns of one row into panels of `width` (each panel's rows contiguous, panels
/// `panel_stride` apart), zeros beyond `columns`; adds them to `sum` if asked for.
template <std::int64_t kPanelWidth>
inline void scatter_row(const float* from, std::int64_t columns, float* to,
                        std::int64_t panel_stride, float* sum) {
  constexpr std::int64_t kW = Simd::kWidth;
  for (std::int64_t first = 0; first < columns; first += kPanelWidth, to += panel_stride) {
    for (std::int64_t j = 0; j < kPanelWidth; j += kW) {
      const std::int64_t left = columns - first - j;
      const Simd::Mask mask = Simd::first(left > 0 ? left : 0);
      const Simd::V x = left >= kW ? Simd::load(from + first + j)
                                   : (left > 0 ? Simd::load(from + first + j, mask) : Simd::zero());
      Simd::store(to + j, x);
      if (sum == nullptr || left <= 0) continue;
      float* total = sum + first + j;
      Simd::store(total, Simd::add(Simd::load(total, mask), x), mask);
    }
  }
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
