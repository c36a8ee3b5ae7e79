// SPDX-License-Identifier: Apache-2.0
// Products of bfloat16 by the tiles of AMX: tdpbf16ps adds 16 x 16 sums of 16 pairs at once. It
// treats denormals as zero. Include after product_avx512_bf16.h.
#pragma once

#include <atomic>
#include <cstdint>

#include "kernels/cpu/tile.h"

namespace isthmus::kernels {
namespace {

inline constexpr std::int64_t kAmxRows = 16;  // of a tile: rows of A and C, steps of B

/// The operand of ldtilecfg: eight tiles of 16 rows of 64 bytes.
struct TileShapes {
  std::uint8_t palette, start_row, reserved[14];
  std::uint16_t row_bytes[16];
  std::uint8_t rows[16];
};
static_assert(sizeof(TileShapes) == 64);
// A constant: GCC 12's intrinsic reads 8 of the 64 bytes as far as the compiler knows (GCC PR
// 114098), which then may leave out what was written into the others.
alignas(64) constexpr TileShapes kTileShapes = {
    1, 0, {}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};

/// Each thread has tiles of its own; this claims and gives back those of the current one.
class AmxTiles {
 public:
  AmxTiles() { _tile_loadconfig(&kTileShapes); }
  ~AmxTiles() { _tile_release(); }
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;
};

/// C (16 R, 16 V) (+)= A B over `depth` steps, a multiple of 16; rows of A are contiguous.
/// REQUIRES: the thread holds AmxTiles.
template <int R, int V>
void amx_block(const TileA& a, const TileB& b, std::int64_t depth, float* c, std::int64_t c_row,
               bool add) {
  constexpr std::int64_t kFloat = sizeof(float);
  const std::int64_t low = kAmxRows * c_row;
  std::atomic_signal_fence(std::memory_order_seq_cst);  // the compiler sees no reads of tiles
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  if (add) {
    _tile_loadd(0, c, c_row * kFloat);
    if constexpr (V > 1) _tile_loadd(1, c + 16, c_row * kFloat);
    if constexpr (R > 1) _tile_loadd(2, c + low, c_row * kFloat);
    if constexpr (R > 1 && V > 1) _tile_loadd(3, c + low + 16, c_row * kFloat);
  }
  const float* a_data = a.data;
  const float* b_data = b.data;
  for (std::int64_t p = 0; p < depth; p += kAmxRows) {
    _tile_loadd(4, a_data, a.row * kFloat);
    _tile_loadd(6, b_data, b.step * kFloat);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (V > 1) {
      _tile_loadd(7, b_data + 16, b.step * kFloat);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (R > 1) {
      _tile_loadd(5, a_data + kAmxRows * a.row, a.row * kFloat);
      _tile_dpbf16ps(2, 5, 6);
      if constexpr (V > 1) _tile_dpbf16ps(3, 5, 7);
    }
    a_data += kAmxRows;
    b_data += kAmxRows * b.step;
  }
  _tile_stored(0, c, c_row * kFloat);
  if constexpr (V > 1) _tile_stored(1, c + 16, c_row * kFloat);
  if constexpr (R > 1) _tile_stored(2, c + low, c_row * kFloat);
  if constexpr (R > 1 && V > 1) _tile_stored(3, c + low + 16, c_row * kFloat);
}

inline void amx_block(std::int64_t row_tiles, std::int64_t vectors, const TileA& a, const TileB& b,
                      std::int64_t depth, float* c, std::int64_t c_row, bool add) {
  if (row_tiles > 1) {
    (vectors > 1 ? amx_block<2, 2> : amx_block<2, 1>)(a, b, depth, c, c_row, add);
  } else {
    (vectors > 1 ? amx_block<1, 2> : amx_block<1, 1>)(a, b, depth, c, c_row, add);
  }
}

struct TileProduct : PairProduct {};

template <>
struct TilesOf<TileProduct> {
  static constexpr std::int64_t kRows = 2 * kAmxRows;
  static constexpr std::int64_t kSteps = kAmxRows;
  static constexpr bool kPacksRowsOfA = true;
  using Held = AmxTiles;

  /// Tiles that reach over the edge of C are summed beside it.
  static void run(const TileA& a, TileB b, std::int64_t depth, std::int64_t rows,
                  std::int64_t vectors, TileC c) {
    constexpr std::int64_t kW = Simd::kWidth;
    alignas(64) float beside[kRows * 2 * kW];
    const std::int64_t row_tiles = blocks_of(rows, kAmxRows);
    for (; vectors > 0; vectors -= 2, b.data += 2 * kW, c.data += 2 * kW) {
      const std::int64_t here = at_most(vectors, 2);
      const Simd::Mask last = vectors > 2 ? Simd::first(kW) : c.last;
      if (rows % kAmxRows == 0 && last == Simd::first(kW)) {
        amx_block(row_tiles, here, a, b, depth, c.data, c.row, c.add);
        continue;
      }
      amx_block(row_tiles, here, a, b, depth, beside, 2 * kW, false);
      for (std::int64_t i = 0; i < rows; ++i) {
        for (std::int64_t j = 0; j < here; ++j) {
          const Simd::Mask mask = j + 1 < here ? Simd::first(kW) : last;
          Simd::V sum = Simd::load(beside + (2 * i + j) * kW);
          float* const to = c.data + i * c.row + j * kW;
          if (c.add) sum = Simd::add(Simd::load(to, mask), sum);
          Simd::store(to, sum, mask);
        }
      }
    }
  }
};

}  // namespace
}  // namespace isthmus::kernels
