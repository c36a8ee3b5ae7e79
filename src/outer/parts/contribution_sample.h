// SPDX-License-Identifier: Apache-2.0
// What a round's report says of this worker's contribution: how much of it the codec lost, and how
// far it agrees with the mean that came back. Both are measured on the same tiles of every worker,
// so that a round costs no further pass over its vector: all tiles of a short one, else about 32 of
// them, and never less than one in 64: one of every so many, at a place that changes from one to
// the next, since a fixed one would fall on the same rows of every matrix. Changes no bit that is
// sent or trained on.
//
// From M contributions of equal norm with a mean pairwise cosine of r, the cosine with their mean
// is sqrt((1 + (M - 1) r) / M): 1 when all agree, 1 / sqrt(M) when they are orthogonal.
// Memory: 4 bytes for each value looked at, until the round ends. One thread.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "isthmus/codec.h"
#include "isthmus/state.h"

namespace isthmus::outer {

/// Of every so many tiles of n values, one is looked at. Pure.
[[nodiscard]] std::size_t sample_stride(std::size_t n);
/// No vector of up to n values has more tiles that are looked at. Pure.
[[nodiscard]] std::size_t most_sampled_tiles(std::size_t n);
/// Which of the tiles number k * stride, k * stride + 1, ..., of n values. The same on all workers;
/// in the last block, which may be short, too. Pure. REQUIRES: k * stride is a tile.
[[nodiscard]] std::size_t sampled_tile(std::size_t n, std::size_t k);
/// All of them, ascending. Pure.
[[nodiscard]] std::vector<std::size_t> sampled_tiles(std::size_t n);

class ContributionSample {
 public:
  /// Of nothing: says nothing.
  ContributionSample() = default;
  /// Of a contribution of n values, tile by tile; or of a part of one that begins at its tile
  /// `first`: `looks_at` counts from there, and `take` and `sums` are all that may be called.
  explicit ContributionSample(std::size_t n, std::size_t first = 0)
      : n_(n), first_(first), stride_(sample_stride(n)) {}
  /// Of a contribution whose tiles were looked at elsewhere. sums: those of its parts, end to end.
  [[nodiscard]] static ContributionSample of(const Codec& codec, const Encoded& encoded,
                                             std::vector<double> sums);

  [[nodiscard]] bool looks_at(std::size_t tile) const {
    return first_ + tile == sampled_tile(n_, (first_ + tile) / stride_);
  }
  /// The next tile that is looked at: what was encoded (with error feedback: the residual
  /// included), and its bytes. REQUIRES: in order, each once.
  void take(const Codec& codec, std::span<const float> x, std::span<const std::byte> bytes);

  /// Of each tile taken the squares of x and of what the codec lost, (2 x tiles,).
  [[nodiscard]] std::span<const double> sums() const { return sums_; }

  /// |Dec(Enc(x)) - x| / |x|. Nothing where x is zero, or anything is not finite.
  [[nodiscard]] std::optional<double> codec_error() const;
  /// Cosine of what the contribution decodes to with `mean`, in [-1, 1]. Nothing where either is
  /// zero or not finite. REQUIRES: n values. DETERMINISM: fp64 sums whose order depends on n alone.
  [[nodiscard]] std::optional<double> cosine(std::span<const float> mean) const;

  /// The error's sums; what the contribution decodes to is read from its bytes again.
  void save(StateWriter& writer, const std::string& prefix) const;
  /// Of a round whose bytes a checkpoint holds. One from before this was measured says no error.
  [[nodiscard]] static ContributionSample load(StateReader& reader, const std::string& prefix,
                                               const Codec& codec, const Encoded& encoded);

 private:
  /// Decodes one more tile. RETURNS: its values.
  std::span<const float> decode(const Codec& codec, std::span<const std::byte> bytes,
                                std::size_t values);

  /// Sums of all tiles, added in order: of the squares of x, and of Dec(Enc(x)) - x.
  struct Squares {
    double all = 0, lost = 0;
  };
  [[nodiscard]] Squares squares() const;

  std::size_t n_ = 0;
  std::size_t first_ = 0;
  std::size_t stride_ = 1;
  std::vector<float> decoded_;  // the tiles looked at, end to end
  std::vector<double> sums_;
  bool decodes_ = true;
};

}  // namespace isthmus::outer
