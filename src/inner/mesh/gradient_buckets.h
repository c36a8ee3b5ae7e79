// SPDX-License-Identifier: Apache-2.0
// The buckets in which data-parallel ranks sum whole gradients (ZeRO 0 and 1): a rank's values in
// backward order, the last values first, cut into ranges of bounded size. A tensor larger than the
// free part of a bucket is split, so every value is in exactly one bucket. Each bucket is
// reduce-scattered: every rank keeps its share of the sums.
//
// DETERMINISM: a sum is in rank order value by value, so cuts change no bit. A codec encodes tile
// by tile; cuts are then tile borders of the ranks' slices, so they change no bit either. Pure and
// immutable; safe to share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "inner/mesh/rank_layout.h"

namespace isthmus {

/// 4 MiB of fp32: a message's latency is short relative to its transfer, and gradients that are
/// final only at the end of a pass are sent in pieces.
inline constexpr std::int64_t kGradientBucketValues = std::int64_t{1} << 20;

struct GradientBucketOptions {
  int ranks = 1;
  /// true: each rank keeps the part of a bucket in its slice of all values (local_values.h), which
  /// it updates. false: each rank keeps an equal part of each bucket, so that all links carry
  /// equally much.
  bool slices = false;
  std::int64_t capacity = kGradientBucketValues;  // largest number of values of a bucket
  std::int64_t tile = 1;   // values that a codec encodes together; no cut inside a tile
  std::int64_t begin = 0;  // values before this one have no gradient: left out, except the rest of
                           // their tile
};

class GradientBuckets {
 public:
  /// REQUIRES: elements >= 1, ranks >= 1, capacity >= tile >= 1, 0 <= begin <= elements.
  GradientBuckets(std::int64_t elements, const GradientBucketOptions& options);

  [[nodiscard]] std::size_t size() const { return buckets_.size(); }
  /// The values of a bucket; the next bucket's are before them.
  [[nodiscard]] CanonicalRange operator[](std::size_t bucket) const { return buckets_[bucket]; }
  /// The values of a bucket whose sums `rank` keeps: consecutive by rank, possibly empty.
  [[nodiscard]] CanonicalRange share(std::size_t bucket, int rank) const;
  /// (ranks,): the sizes of the shares.
  [[nodiscard]] std::vector<std::int64_t> counts(std::size_t bucket) const;
  /// All values whose sums `rank` keeps: with slices one range, else one per bucket, ascending.
  [[nodiscard]] std::vector<CanonicalRange> shares(int rank) const;

 private:
  std::int64_t elements_;
  GradientBucketOptions options_;
  std::vector<CanonicalRange> buckets_;
};

/// Buckets of a rank's values, without a tied_embedding(), whose gradient another stage has.
[[nodiscard]] GradientBuckets gradient_buckets(const RankLayout& layout,
                                               GradientBucketOptions options);

}  // namespace isthmus
