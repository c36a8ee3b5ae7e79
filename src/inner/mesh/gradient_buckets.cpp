// SPDX-License-Identifier: Apache-2.0
#include "inner/mesh/gradient_buckets.h"

#include <algorithm>

#include "core/base/check.h"
#include "inner/model/local_values.h"

namespace isthmus {

GradientBuckets::GradientBuckets(std::int64_t elements, const GradientBucketOptions& options)
    : elements_(elements), options_(options) {
  ISTHMUS_CHECK(elements >= 1 && options.ranks >= 1, elements, options.ranks);
  ISTHMUS_CHECK(options.tile >= 1 && options.capacity >= options.tile, options.capacity);
  ISTHMUS_CHECK(options.begin >= 0 && options.begin <= elements, options.begin, elements);
  // Tiles are counted from where a slice begins, so a bucket of them stays within one.
  const int parts = options.tile > 1 ? options.ranks : 1;
  for (int part = parts - 1; part >= 0; --part) {
    const CanonicalRange slice = slice_of(elements, parts, part);
    if (slice.end <= options.begin) break;
    const std::int64_t left_out = std::max<std::int64_t>(options.begin - slice.begin, 0);
    const std::int64_t first = slice.begin + left_out / options.tile * options.tile;
    for (std::int64_t end = slice.end; end > first;) {
      const std::int64_t least = std::max(end - options.capacity, first) - slice.begin;
      const std::int64_t tiles = (least + options.tile - 1) / options.tile;
      const std::int64_t begin = slice.begin + tiles * options.tile;
      buckets_.push_back({begin, end});
      end = begin;
    }
  }
}

CanonicalRange GradientBuckets::share(std::size_t bucket, int rank) const {
  const CanonicalRange all = buckets_[bucket];
  if (options_.slices) return common(all, slice_of(elements_, options_.ranks, rank));
  const std::int64_t tiles = (all.size() + options_.tile - 1) / options_.tile;
  const CanonicalRange own = slice_of(tiles, options_.ranks, rank);
  return {all.begin + own.begin * options_.tile,
          std::min(all.begin + own.end * options_.tile, all.end)};
}

std::vector<std::int64_t> GradientBuckets::counts(std::size_t bucket) const {
  std::vector<std::int64_t> counts;
  for (int rank = 0; rank < options_.ranks; ++rank) counts.push_back(share(bucket, rank).size());
  return counts;
}

std::vector<CanonicalRange> GradientBuckets::shares(int rank) const {
  if (options_.slices) return {slice_of(elements_, options_.ranks, rank)};
  std::vector<CanonicalRange> shares;
  for (std::size_t bucket = buckets_.size(); bucket-- > 0;) shares.push_back(share(bucket, rank));
  return shares;
}

GradientBuckets gradient_buckets(const RankLayout& layout, GradientBucketOptions options) {
  options.begin = layout.tied_embedding().end;
  return {layout.local().elements(), options};
}

}  // namespace isthmus
