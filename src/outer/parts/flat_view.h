// SPDX-License-Identifier: Apache-2.0
// Several spans of memory as one vector: the tensors of a fragment or of a bucket, concatenated.
// Borrows the spans. One thread.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "isthmus/codec.h"
#include "outer/parts/contribution_sample.h"
#include "quant/codecs/error_feedback.h"

namespace isthmus::outer {

class FlatView {
 public:
  void append(std::span<float> piece);
  [[nodiscard]] std::size_t size() const { return size_; }
  /// Copies values [begin, begin + out.size()) to `out`.
  void read(std::size_t begin, std::span<float> out) const;
  /// Calls `piece(at, values)` for the part of [begin, end) in every span, in order.
  void for_range(std::size_t begin, std::size_t end,
                 const std::function<void(std::size_t at, std::span<float> values)>& piece) const;
  /// Calls `piece(begin, values)` for every span in order.
  void for_each(const std::function<void(std::size_t begin, std::span<float> values)>& piece) const;

 private:
  std::vector<std::size_t> begins_;
  std::vector<std::span<float>> pieces_;
  std::size_t size_ = 0;
};

/// Writes the values of the tile that starts at `begin`.
using FillTile = std::function<void(std::size_t begin, std::span<float> tile)>;

/// Calls `fill` for the tiles of n values, in order, into scratch.
void for_each_tile(std::size_t n, const FillTile& fill);

/// Encodes n values that `fill` writes tile by tile, so that the whole vector never exists. Tile t
/// has key.tile + t. `feedback` (may be null) adds its residual and stores the new one. It restarts
/// from zero when a value plus its residual overflows; the code then decodes to values that are not
/// finite. `sample` (may be null) receives its sampled tiles.
[[nodiscard]] Encoded encode_tiles(const Codec& codec, std::size_t n, const FillTile& fill,
                                   const EncodeKey& key = {}, ErrorFeedback* feedback = nullptr,
                                   ContributionSample* sample = nullptr);

/// Sum of squares of at most a tile, in fp64. DETERMINISM: eight sums, added in one order.
[[nodiscard]] double sum_of_squares(std::span<const float> tile);
/// L2 norm in fp64. DETERMINISM: eight sums a tile, then tiles in order, so the order depends only
/// on the length.
[[nodiscard]] double l2_norm(std::span<const float> values);

}  // namespace isthmus::outer
