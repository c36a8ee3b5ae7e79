// SPDX-License-Identifier: Apache-2.0
// The shares of the gradients' sums that each data-parallel rank keeps, and their transfer to the
// canonical gradients. Pure functions.
#pragma once

#include <vector>

#include "inner/mesh/gradient_buckets.h"
#include "inner/mesh/mesh_rank.h"
#include "inner/mesh/rank_layout.h"
#include "inner/model/local_values.h"

namespace isthmus {

/// The ranks' buckets of whole gradients. THROWS: ConfigError naming an unknown codec.
[[nodiscard]] GradientBucketOptions bucket_options(const MeshOptions& options);
/// Ranges of a chunk's values whose sums data-parallel rank `dp` keeps, ascending.
[[nodiscard]] std::vector<CanonicalRange> gradient_shares(const RankLayout& layout,
                                                          const MeshOptions& options, int dp);
/// canonical gradients := the values of `local` in `share`, which it must have, without a
/// tied_embedding().
void give_share(const RankLayout& layout, const LocalValues& local, CanonicalRange share,
                float* canonical);

}  // namespace isthmus
