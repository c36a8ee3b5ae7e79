// SPDX-License-Identifier: Apache-2.0
#include "inner/gradient_shares.h"

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
  return GradientBuckets(layout.local().elements(), bucket_options(options)).shares(dp);
}

void give_share(const RankLayout& layout, const LocalValues& local, CanonicalRange share, bool tied,
                float* canonical) {
  const CanonicalRange head = layout.tied_head();
  const auto give = [&](CanonicalRange range) {
    layout.give(local.at(range.begin), range, tied, canonical);
  };
  if (tied) {
    give(common(share, head));
  } else if (head.size() == 0) {
    give(share);
  } else {
    give(common(share, {0, head.begin}));
    give(common(share, {head.end, layout.local().elements()}));
  }
}

}  // namespace isthmus
