// SPDX-License-Identifier: Apache-2.0
// Sums of gradients of which each tensor-parallel rank has a summand: norms over a rank's own heads
// or tokens, and copies of key heads.
#pragma once

#include "inner/mesh/mesh_groups.h"
#include "inner/mesh/rank_layout.h"

namespace isthmus {

/// values (range.size(),): this rank's gradients of the local indices in `range`. Gradients of
/// which other ranks have summands are replaced by their sums, the same bits on all ranks.
/// Collective over groups.tensor and groups.copies.
void sum_over_tensor_ranks(const RankLayout& layout, const MeshGroups& groups, CanonicalRange range,
                           float* values);

}  // namespace isthmus
