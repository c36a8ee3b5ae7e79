// SPDX-License-Identifier: Apache-2.0
// Which part of the summed gradients each data-parallel rank keeps (ZeRO), and the copy of that
// part into the site's canonical gradients. Pure functions.
#pragma once

#include <vector>

#include "inner/mesh/gradient_buckets.h"
#include "inner/mesh/mesh_rank.h"
#include "inner/mesh/rank_layout.h"
#include "inner/model/local_values.h"

namespace isthmus {

/// Size and codec of the buckets in which ranks sum their gradients. THROWS: ConfigError naming an
/// unknown codec.
[[nodiscard]] GradientBucketOptions bucket_options(const MeshOptions& options);
/// Ranges of a chunk's values whose sums data-parallel rank `dp` keeps, ascending.
[[nodiscard]] std::vector<CanonicalRange> gradient_shares(const RankLayout& layout,
                                                          const MeshOptions& options, int dp);
/// Copies the values of `local` in the range `share` to `canonical`, except those of a tied
/// embedding. REQUIRES: `local` has all other values of `share`.
void give_share(const RankLayout& layout, const LocalValues& local, CanonicalRange share,
                float* canonical);

}  // namespace isthmus
