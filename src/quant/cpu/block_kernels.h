// SPDX-License-Identifier: Apache-2.0
// Inner loops of the block codecs, one table per instruction set, all with the same bits. A block
// is `block` consecutive values, a power of two; the last one of a tile may be short. The portable
// table is the plainest loop over block_grids.h and the oracle of the others.
//
// n values, 1 <= n <= kTileValues; byte pointers need no alignment. Stateless; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "quant/math/block_grids.h"

namespace isthmus {

/// Code i is in the bits [i b, (i+1) b) of a little-endian bit string, b = bits of the grid.
/// `scales` holds one float per block: the decoded scale, or the threshold for a threshold grid;
/// for an offset grid two: low, step.
struct GridLoops {
  /// A block with a NaN scale gets zero codes (threshold grids: any). Writes ceil(n b / 8) bytes;
  /// unused bits are zero. REQUIRES, if the scale is neither NaN nor 0: magnitudes below 2^7 scales
  /// (Lloyd-Max grids), or below two largest values of the grid (others).
  void (*encode)(const float* x, std::size_t n, std::size_t block, const float* scales,
                 std::byte* codes);
  void (*decode)(const std::byte* codes, std::size_t n, std::size_t block, const float* scales,
                 float* out);
  void (*decode_add)(const std::byte* codes, std::size_t n, std::size_t block, const float* scales,
                     float* sum);
  /// True if every code is one that an encoder makes, and unused bits are zero.
  bool (*valid)(const std::byte* codes, std::size_t n);
};

/// Sums run in 16 fp64 lanes, value i of a block in lane i mod 16, and are then halved: lanes 8-15
/// added to 0-7 and so on. fp64 neither overflows nor underflows on squares of fp32, which are
/// exact.
inline constexpr std::size_t kSumLanes = 16;

/// Number of values that an encoder takes through all its passes before the next ones: the first
/// pass reads memory, later passes hit the L1 cache, and memory is read at an even rate.
inline constexpr std::size_t kPart = 1024;

struct BlockKernels {
  const char* isa;
  /// largest[b]: the largest |x| of block b as a bit pattern; NaN and infinity compare as largest.
  void (*block_amax)(const float* x, std::size_t n, std::size_t block, std::uint32_t* largest);
  void (*block_sum)(const float* x, std::size_t n, std::size_t block, double* sums);  // of |x|
  void (*block_squares)(const float* x, std::size_t n, std::size_t block, double* sums);
  /// Codes of the ternary grid, with the sum and the number of the |x| above the block's threshold.
  /// REQUIRES: thresholds that are NaN or at least half the root mean square. The values above then
  /// span less than 2^7, so the sum is exact in any order.
  void (*encode_ternary)(const float* x, std::size_t n, std::size_t block, const float* thresholds,
                         std::byte* codes, double* sums, std::uint32_t* counts);
  /// Least and largest value, -0 counting as 0, and the largest magnitude as in block_amax. low and
  /// high are unspecified if a value is not finite.
  void (*block_range)(const float* x, std::size_t n, std::size_t block, float* low, float* high,
                      std::uint32_t* largest);
  /// scales[b] = scale_for(largest[b], top, most).
  void (*scales_for)(const std::uint32_t* largest, std::size_t blocks, float top, float most,
                     float* scales);
  std::array<GridLoops, kGrids> grids;

  [[nodiscard]] const GridLoops& grid(Grid which) const {
    return grids[static_cast<std::size_t>(which)];
  }
};

extern const BlockKernels kPortableBlockKernels;

[[nodiscard]] constexpr std::size_t blocks_of(std::size_t n, std::size_t block) {
  return (n + block - 1) / block;
}
[[nodiscard]] constexpr std::size_t code_bytes(std::size_t n, unsigned bits) {
  return (n * bits + 7) / 8;
}

}  // namespace isthmus
