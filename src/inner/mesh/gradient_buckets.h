// SPDX-License-Identifier: Apache-2.0
// The buckets in which data-parallel ranks sum gradients that each of them holds whole (ZeRO 0 and
// 1): a rank's values in backward order, the last ones first, cut into ranges of bounded size. A
// tensor larger than what is left of a bucket is split, so every value is in exactly one. Each
// rank is left with its share of a bucket.
//
// DETERMINISM: a sum is in rank order value by value, so cuts change no bit; under a codec, which
// encodes tile by tile, cuts are tile borders of the ranks' slices, so they change none either.
// Pure and immutable; safe to share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "inner/mesh/rank_layout.h"

namespace isthmus {

/// 4 MiB of fp32: a message's latency is small beside it, and what is final only as a pass ends is
/// sent in pieces.
inline constexpr std::int64_t kGradientBucketValues = std::int64_t{1} << 20;

struct GradientBucketOptions {
  int ranks = 1;
  /// Ranks are left with what lies in their slice of all values (local_values.h), which they
  /// update; else each with as much of a bucket as the others, so that all links carry alike.
  bool slices = false;
  std::int64_t capacity = kGradientBucketValues;  // most values of a bucket
  std::int64_t tile = 1;   // values that a codec encodes together: no cut inside of one
  std::int64_t begin = 0;  // values before have no gradient: left out, but for the rest of a tile
};

class GradientBuckets {
 public:
  /// REQUIRES: elements >= 1, ranks >= 1, capacity >= tile >= 1, 0 <= begin <= elements.
  GradientBuckets(std::int64_t elements, const GradientBucketOptions& options);

  [[nodiscard]] std::size_t size() const { return buckets_.size(); }
  /// The values of a bucket; those of the next one lie before.
  [[nodiscard]] CanonicalRange operator[](std::size_t bucket) const { return buckets_[bucket]; }
  /// Those of them that a rank is left with: one after another by rank, perhaps none.
  [[nodiscard]] CanonicalRange share(std::size_t bucket, int rank) const;
  /// (ranks,): how many.
  [[nodiscard]] std::vector<std::int64_t> counts(std::size_t bucket) const;
  /// All that a rank is left with: of slices one range, else one of each bucket, ascending.
  [[nodiscard]] std::vector<CanonicalRange> shares(int rank) const;

 private:
  std::int64_t elements_;
  GradientBucketOptions options_;
  std::vector<CanonicalRange> buckets_;
};

/// Of what a rank has, but for a tied_embedding(), whose gradient another stage has.
[[nodiscard]] GradientBuckets gradient_buckets(const RankLayout& layout,
                                               GradientBucketOptions options);

}  // namespace isthmus
