// SPDX-License-Identifier: Apache-2.0
// Statistics of this worker's contribution for a round's report: how much the codec lost, and the
// contribution's agreement with the mean. Both are measured on a sample of tiles that is the same
// on all workers, so that a round needs no further pass over its vector. The sample has all tiles
// of a short vector, about 32 tiles of a longer one, and at least one in 64. It takes one tile of
// each block of `sample_stride` tiles, at a position that changes from block to block, since a
// fixed position would fall on the same rows of every matrix. No bit that is sent or trained on
// depends on the sample.
//
// From M contributions of equal norm with a mean pairwise cosine of r, the cosine with their mean
// is sqrt((1 + (M - 1) r) / M): 1 when all agree, 1 / sqrt(M) when they are orthogonal.
// Memory: 4 bytes for each sampled value, until the round ends. One thread.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "isthmus/codec.h"
#include "isthmus/state.h"

namespace isthmus::outer {

/// Tiles per block of a vector of n values; each block has one sampled tile. Pure.
[[nodiscard]] std::size_t sample_stride(std::size_t n);
/// An upper bound of the sampled tiles of any vector of up to n values. Pure.
[[nodiscard]] std::size_t most_sampled_tiles(std::size_t n);
/// The sampled tile of block k, which has the tiles from k * stride on; the last block may be
/// short. The same on all workers. Pure. REQUIRES: k * stride is a tile of the n values.
[[nodiscard]] std::size_t sampled_tile(std::size_t n, std::size_t k);
/// The sampled tiles of n values, ascending. Pure.
[[nodiscard]] std::vector<std::size_t> sampled_tiles(std::size_t n);

class ContributionSample {
 public:
  /// An empty sample, without statistics.
  ContributionSample() = default;
  /// Sample of a contribution of n values, given tile by tile; or of a part that starts at its tile
  /// `first`. For a part, `looks_at` counts tiles from there, and only `take` and `sums` may be
  /// called.
  explicit ContributionSample(std::size_t n, std::size_t first = 0)
      : n_(n), first_(first), stride_(sample_stride(n)) {}
  /// Sample of a contribution whose tiles were measured elsewhere. sums: the sums of its parts,
  /// concatenated.
  [[nodiscard]] static ContributionSample of(const Codec& codec, const Encoded& encoded,
                                             std::vector<double> sums);

  [[nodiscard]] bool looks_at(std::size_t tile) const {
    return first_ + tile == sampled_tile(n_, (first_ + tile) / stride_);
  }
  /// Adds the next sampled tile: the encoded values x (with error feedback: the residual included),
  /// and their bytes. REQUIRES: tiles in order, each once.
  void take(const Codec& codec, std::span<const float> x, std::span<const std::byte> bytes);

  /// (2 x tiles,): for each sampled tile the sum of squares of x and of the codec's error.
  [[nodiscard]] std::span<const double> sums() const { return sums_; }

  /// |Dec(Enc(x)) - x| / |x|. Absent if x is zero, or if a value is not finite.
  [[nodiscard]] std::optional<double> codec_error() const;
  /// Cosine of the decoded contribution with `mean`, in [-1, 1]. Absent if either is zero or not
  /// finite. REQUIRES: mean has n values. DETERMINISM: fp64 sums whose order depends only on n.
  [[nodiscard]] std::optional<double> cosine(std::span<const float> mean) const;

  /// Saves the sums of the error; decoded values are decoded again from the saved bytes.
  void save(StateWriter& writer, const std::string& prefix) const;
  /// Loads the sample of a round whose bytes a checkpoint holds. A checkpoint without the sums
  /// gives a sample without codec_error.
  [[nodiscard]] static ContributionSample load(StateReader& reader, const std::string& prefix,
                                               const Codec& codec, const Encoded& encoded);

 private:
  /// Decodes one more tile. RETURNS: its values.
  std::span<const float> decode(const Codec& codec, std::span<const std::byte> bytes,
                                std::size_t values);

  /// Sums over all sampled tiles, added in order: of the squares of x, and of Dec(Enc(x)) - x.
  struct Squares {
    double all = 0, lost = 0;
  };
  [[nodiscard]] Squares squares() const;

  std::size_t n_ = 0;
  std::size_t first_ = 0;
  std::size_t stride_ = 1;
  std::vector<float> decoded_;  // the sampled tiles, concatenated
  std::vector<double> sums_;
  bool decodes_ = true;
};

}  // namespace isthmus::outer
