// SPDX-License-Identifier: Apache-2.0
// Initial weights. Each value is a function of (seed, canonical element id), so it depends neither
// on threads nor on the mesh.
#pragma once

#include <cstdint>
#include <span>

#include "inner/model/model_layout.h"
#include "kernels/thread_team.h"

namespace isthmus {

inline constexpr double kInitDeviation = 0.02;  // for both families, as in Hugging Face's
                                                // configurations

/// Fills `values` (layout.elements(),): N(0, 0.02) for matrices, GPT-2's projections into the
/// residual stream divided by sqrt(2 L); norm weights 1; biases 0.
void initialize(kernels::ThreadTeam& team, const ModelLayout& layout, std::uint64_t seed,
                std::span<float> values);

}  // namespace isthmus
