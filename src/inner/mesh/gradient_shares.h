// SPDX-License-Identifier: Apache-2.0
// What each data-parallel rank of a mesh is left with of the gradients' sums, and the way from
// there to the canonical gradients. Pure functions.
#pragma once

#include <vector>

#include "inner/mesh/gradient_buckets.h"
#include "inner/mesh/mesh_rank.h"
#include "inner/mesh/rank_layout.h"
#include "inner/model/local_values.h"

namespace isthmus {

/// How the ranks of such a mesh cut whole gradients. THROWS: ConfigError naming an unknown codec.
[[nodiscard]] GradientBucketOptions bucket_options(const MeshOptions& options);
/// Values of a chunk whose sums data-parallel rank `dp` is left with, ascending.
[[nodiscard]] std::vector<CanonicalRange> gradient_shares(const RankLayout& layout,
                                                          const MeshOptions& options, int dp);
/// canonical gradients := those of `local` in `share`, which it has, but for a tied_embedding().
void give_share(const RankLayout& layout, const LocalValues& local, CanonicalRange share,
                float* canonical);

}  // namespace isthmus
