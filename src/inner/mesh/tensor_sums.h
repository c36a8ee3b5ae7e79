// SPDX-License-Identifier: Apache-2.0
// Gradients of which tensor-parallel ranks have summands each: norms that see a rank's heads or
// tokens alone, and copies of key heads.
#pragma once

#include "inner/mesh/mesh_groups.h"
#include "inner/mesh/rank_layout.h"

namespace isthmus {

/// values (range.size(),): this rank's gradients of the local places in `range`; those of which
/// other ranks have summands := their sums, the same bits on all. Collective over groups.tensor and
/// groups.copies.
void sum_over_tensor_ranks(const RankLayout& layout, const MeshGroups& groups, CanonicalRange range,
                           float* values);

}  // namespace isthmus
