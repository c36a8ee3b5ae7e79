// SPDX-License-Identifier: Apache-2.0
// Codecs whose tile is a plane of block scales and a plane of codes: int8, int4, uint8-minmax, nf4,
// the fp4 and fp8 families, lm2, lm3, ternary, 1bit. Layout: docs/internals/codecs.md.
#pragma once

#include <memory>
#include <string>

#include "isthmus/codec.h"
#include "quant/codecs/scale_plane.h"
#include "quant/math/block_grids.h"

namespace isthmus {

/// The rule for a block's ideal scale.
enum class Statistic {
  kLargest,     // largest |x| over the grid's largest value
  kPowerOfTwo,  // OCP MX: 2^(floor(log2 largest) - exponent of the grid's largest value)
  kMean,        // mean of |x|
  kRms,         // root of the mean square
  kTernary,     // mean of the |x| above .612 rms; all others are coded as 0
  kRange,       // least value and range / 255
};

struct BlockCodecSpec {
  std::string name;  // canonical spelling
  Grid grid = Grid::kInt8;
  std::size_t block = 0;  // a power of two <= kTileValues
  ScaleForm form = ScaleForm::kFp32;
  Statistic statistic = Statistic::kLargest;
  bool stochastic = false;
  bool error_feedback = false;
};

[[nodiscard]] std::unique_ptr<const Codec> make_block_codec(BlockCodecSpec spec);
/// The spec from which a codec of `make_block_codec` was made; null for other codecs. Valid for the
/// codec's lifetime.
[[nodiscard]] const BlockCodecSpec* block_codec_spec(const Codec& codec);

}  // namespace isthmus
