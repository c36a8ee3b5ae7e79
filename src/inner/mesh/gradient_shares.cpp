// SPDX-License-Identifier: Apache-2.0
#include "inner/mesh/gradient_shares.h"

#include <algorithm>

#include "isthmus/codec.h"

namespace isthmus {

GradientBucketOptions bucket_options(const MeshOptions& options) {
  const auto tile =
      static_cast<std::int64_t>(make_codec(options.codecs.data)->lossless() ? 1 : kTileValues);
  return {.ranks = options.mesh.dp,
          .slices = options.zero >= 1,
          .capacity = std::max(options.bucket_values, tile),
          .tile = tile};
}

std::vector<CanonicalRange> gradient_shares(const RankLayout& layout, const MeshOptions& options,
                                            int dp) {
  return gradient_buckets(layout, bucket_options(options)).shares(dp);
}

void give_share(const RankLayout& layout, const LocalValues& local, CanonicalRange share,
                float* canonical) {
  const CanonicalRange own =
      common(share, {layout.tied_embedding().end, layout.local().elements()});
  layout.give(local.at(own.begin), own, canonical);
}

}  // namespace isthmus
